/* What the page must never do, and what it must be for everybody. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { api, create, goTo, key, onScreen, open, rowOf, run, screenText, shot, until, url } from './ui_kit.mjs';

async function accessible(colorScheme) {
	const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
	const box = await create({ name: 'looked-at', labels: { a: 'b' }, policy: { version: 1, allow: ['a.example'] } });
	await create({ name: 'stopped' }).then((b) => api('POST', `/v1/boxes/${b.id}/stop`));
	await run(box.id, 'echo 1 >/root/f; getent hosts no.example; true');
	await run(box.id, 'echo 2 >/root/f');
	const found = [];
	const page = await open({ signIn: false, colorScheme, bypassCSP: true });
	const look = async (name) => {
		await page.evaluate(axe);
		const r = await page.evaluate(() =>
			window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
		);
		for (const v of r.violations)
			for (const n of v.nodes)
				found.push(
					`${colorScheme} ${name}: ${v.id} (${v.impact}) ${n.target.join(' ')}: ${n.failureSummary.split('\n').slice(1, 3).join(' ')}`
				);
		assert.ok(r.passes.length > 10, 'it looked');
	};
	await look('sign in');
	await page.fill('#key', key);
	await page.keyboard.press('Enter');
	await page.waitForSelector('table.boxes tbody tr');
	for (const hash of [
		'#/',
		'#/events',
		'#/templates',
		'#/keys',
		...['terminal', 'files', 'history', 'network', 'journal', 'events', 'details'].map(
			(t) => `#/boxes/${box.id}/${t}`
		)
	]) {
		await goTo(page, hash);
		await page.waitForTimeout(700);
		await look(hash.replace(box.id, 'ID'));
	}
	await goTo(page, `#/boxes/${box.id}/terminal`);
	const begin = page.getByRole('button', { name: /Open a terminal/ });
	if (await begin.count()) await begin.click();
	await until('a terminal', async () => /started here|shared/.test(await page.textContent('.term-status')));
	await look('a terminal that is open');
	await goTo(page, '#/');
	await page.click('text=New box');
	await page.waitForSelector('dialog[open]');
	await look('a dialog');
	await page.keyboard.press('Escape');
	await page.getByRole('button', { name: 'Actions for looked-at' }).click();
	await look('a menu');
	assert.deepEqual(found, []);
}

export const guard = {
	/* one theme a test: it takes its time */
	accessible_light: () => accessible('light'),
	accessible_dark: () => accessible('dark'),

	async hostile_names_do_nothing() {
		const evil = [
			'<img src=x onerror=alert(1)>',
			'"><script>alert(1)</script>',
			"'-alert(1)-'",
			'javascript:alert(1)',
			'{{7*7}}${7*7}',
			'\u202egnp.exe',
			'<svg/onload=alert(1)>'
		];
		const box = await create({
			name: 'plain',
			labels: Object.fromEntries(evil.map((e, n) => [`${n}${e.replaceAll('=', ' ')}`, e])),
			policy: { version: 1, allow: ['a.example'] }
		});
		for (const e of evil)
			await api('POST', `/v1/boxes/${box.id}/files/mkdir`, { path: `/root/${e.replaceAll('/', '_')}` });
		await api('POST', `/v1/boxes/${box.id}/checkpoints`, { message: evil.join(' ') });
		await api('PUT', `/v1/boxes/${box.id}/tags/${encodeURIComponent('x-onerror')}`, {});
		await api('POST', `/v1/boxes/${box.id}/execs`, {
			argv: ['sh', '-c', 'sleep 600', ...evil],
			detach: true,
			tag: evil[0]
		});
		await run(
			box.id,
			"printf '<script>alert(1)</script>' >/root/view; printf '<b>%s</b>\\n' '\"onload=alert(1)' >>/root/view"
		);
		const page = await open();
		await rowOf(page, 'plain').waitFor();
		for (const t of ['files', 'history', 'network', 'journal', 'events', 'details', 'terminal']) {
			await goTo(page, `#/boxes/${box.id}/${t}`);
			await page.waitForTimeout(500);
			if (t === 'files') {
				await page.getByRole('button', { name: evil[0].replaceAll('/', '_'), exact: true }).waitFor();
				await page.getByRole('button', { name: 'view', exact: true }).click();
				await page.waitForSelector('.preview pre');
				await shot(page, 'hostile');
			}
			if (t === 'history') assert.match(await page.textContent('.tree'), /<svg\/onload=alert\(1\)>/);
		}
		await page.getByRole('button', { name: 'New terminal' }).click();
		await until('a terminal', async () => /started here/.test(await page.textContent('.term-status')));
		await page.locator('.screen').click();
		/* clipboard, title, link, a report that would be typed back, markup */
		await page.keyboard.type(
			"printf '\\033]52;c;aGFja2Vk\\007\\033]0;evil\\007\\033]8;;javascript:alert(1)\\007link\\033]8;;\\007\\033]10;?\\007<img src=x onerror=alert(1)>\\n'; echo do$((1))ne\n"
		);
		await onScreen(page, 'do1ne');
		assert.match(await screenText(page), /link.*<img src=x onerror=alert\(1\)>/);
		assert.equal(await page.title(), 'plain · den');
		assert.equal(await page.locator('.screen a').count(), 0);
		const made = await page.evaluate(() => ({
			scripts: [...document.scripts].map((s) => s.src),
			images: document.images.length,
			bold: document.querySelectorAll('.preview b, .screen img').length,
			styles: document.querySelectorAll('style').length
		}));
		assert.ok(
			made.scripts.every((s) => s.startsWith(url)),
			JSON.stringify(made)
		);
		assert.deepEqual([made.images, made.bold, made.styles], [0, 0, 0]);
		assert.equal(
			await page.evaluate(() => {
				try {
					document.body.innerHTML = '<b>x</b>';
					return 'made';
				} catch (e) {
					return e.name;
				}
			}),
			'TypeError'
		);
		const v = await page.evaluate(() => window.violations.splice(0));
		assert.ok(
			v.length >= 1 && v.every((x) => x.startsWith('require-trusted-types-for')),
			`only our own try was stopped: ${v}`
		);
		page.bad = page.bad.filter((x) => !/TrustedHTML/.test(x));
	},

	async policy_of_the_page() {
		const res = await fetch(`${url}/ui`, { redirect: 'manual' });
		const csp = res.headers.get('content-security-policy');
		assert.match(csp, /default-src 'none'/);
		assert.match(csp, /script-src 'self'/);
		assert.ok(!/unsafe|\*|http:|data:/.test(csp), csp);
		assert.equal(res.headers.get('x-content-type-options'), 'nosniff');
		assert.equal(res.headers.get('referrer-policy'), 'no-referrer');
		const html = await res.text();
		const names = [...html.matchAll(/(?:src|href)="(\/ui\/[^"]+)"/g)].map((m) => m[1]);
		assert.ok(names.length >= 4);
		for (const n of names) {
			const a = await fetch(url + n);
			assert.equal(a.status, 200, n);
			assert.match(a.headers.get('cache-control'), /immutable/);
			const again = await fetch(url + n, { headers: { 'If-None-Match': a.headers.get('etag') } });
			assert.equal(again.status, 304, n);
			const text = await a.text(); /* fetch asked for gzip and unpacked it */
			const plain = await fetch(url + n, { headers: { 'Accept-Encoding': 'identity' } });
			assert.equal(plain.headers.get('content-encoding'), null);
			assert.equal(await plain.text(), text, n);
		}
		assert.equal(
			(await fetch(`${url}/ui/0123/main.js`)).headers.get('cache-control'),
			'no-cache',
			'a name of another version is not kept'
		);
		assert.equal((await fetch(`${url}/ui/0123/nothing.js`)).status, 404);
		assert.equal((await fetch(`${url}/ui/0123/..%2f..%2fetc%2fpasswd`)).status, 404);
	}
};
