/* The page, in a real browser: node ui.mjs TEST. From the environment: DEN_URL, DEN_KEY, TMP, CHROMIUM. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { guard } from './ui_guard.mjs';
import {
	api,
	create,
	goTo,
	key,
	main,
	onScreen,
	open,
	rowOf,
	run,
	screenText,
	shot,
	tmp,
	until,
	url
} from './ui_kit.mjs';

const tests = {
	...guard,

	async signing_in() {
		const page = await open({ signIn: false });
		await page.fill('#key', 'den_0000000000000000000000000000000000000000');
		await page.keyboard.press('Enter');
		await page.waitForSelector('.problem strong');
		assert.match(await page.textContent('.problem'), /no such key/);
		await page.fill('#key', key);
		await page.keyboard.press('Enter');
		await page.waitForSelector('.frame');
		const [cookie] = await page.context().cookies();
		assert.equal(cookie.name, 'den_session');
		assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', 'the cookie is HttpOnly and SameSite=Strict');
		assert.equal(await page.evaluate(() => document.cookie), '', 'scripts cannot read it');
		assert.ok(!cookie.value.includes(key.slice(4)), 'it is not the key');
		await page.reload();
		await page.waitForSelector('.frame');
		await page.click('button[aria-label="Sign out"]');
		await page.waitForSelector('#key');
		const status = await page.evaluate(
			async (value) => (await fetch('/v1/whoami', { headers: { Authorization: `Bearer ${value}` } })).status,
			cookie.value
		);
		assert.equal(status, 401, 'the session has ended on the server, too');
	},

	async session_needs_our_page() {
		const page = await open();
		const ask = (opt) => page.evaluate(async (o) => (await fetch('/v1/boxes', o)).status, opt);
		assert.ok([401, 403].includes(await ask({ method: 'POST', body: '{}' })), 'a change without the header');
		assert.equal(await ask({ method: 'POST', body: '{}', headers: { 'X-Den-Page': '1' } }), 201, 'with it');
		assert.equal(
			await page.evaluate(
				async (k) => (await fetch('/ui/session', { method: 'POST', body: JSON.stringify({ key: k }) })).status,
				key
			),
			403,
			'signing in likewise'
		);
	},

	/* tests/cli/serve_ui.sh makes and removes a box by the command line when we ask for it */
	async list_is_live() {
		const page = await open();
		await page.waitForSelector('.empty');
		assert.match(
			await page.textContent('.empty'),
			new RegExp(`curl ${url}`),
			'an empty list teaches how to begin, here'
		);
		await shot(page, 'empty');
		writeFileSync(join(tmp, 'want-box'), '');
		await rowOf(page, 'by-hand').waitFor({ timeout: 20000 });
		const box = await create({ name: 'by-api', labels: { task: '7' }, limits: { memory: 256 << 20 } });
		await rowOf(page, 'by-api').waitFor();
		assert.match(await rowOf(page, 'by-api').textContent(), /running.*task=7/);
		await until('figures', async () => /\d%.*[KM]iB/.test(await rowOf(page, 'by-api').textContent()), 20);
		await api('POST', `/v1/boxes/${box.id}/pause`);
		await until('paused', async () => /paused/.test(await rowOf(page, 'by-api').textContent()));
		await page.fill('#filter', 'task=7');
		await until('the filter', async () => (await page.locator('table.boxes tbody tr').count()) === 1);
		await page.fill('#filter', '');
		await rowOf(page, 'by-api').getByRole('button').click();
		await page.getByRole('menuitem', { name: 'Resume' }).click();
		await until('running', async () => (await api('GET', `/v1/boxes/${box.id}`)).state === 'running');
		await rowOf(page, 'by-api').getByRole('button').click();
		await page.getByRole('menuitem', { name: 'Delete…' }).click();
		await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
		await until('gone', async () => (await rowOf(page, 'by-api').count()) === 0);
		writeFileSync(join(tmp, 'want-none'), '');
		await until('gone by hand', async () => (await rowOf(page, 'by-hand').count()) === 0, 20);
	},

	async create_form() {
		const page = await open();
		await page.click('text=New box');
		const d = page.getByRole('dialog');
		await d.getByLabel('Name').fill('made-here');
		await d.getByLabel('Ends after').selectOption('3600');
		await d.getByLabel('Memory, MiB').fill('128');
		await d.getByLabel('Labels').fill('nonsense');
		await d.getByRole('button', { name: 'Create' }).click();
		await until('a failure inside the dialog', async () => /KEY=VALUE/.test(await d.textContent()));
		await d.getByLabel('Labels').fill('a=1\nb=x=y');
		await d.getByRole('button', { name: 'Create' }).click();
		await page.waitForSelector('h1:text("made-here")');
		const [box] = (await api('GET', '/v1/boxes')).boxes;
		assert.deepEqual([box.labels, box.limits.memory], [{ a: '1', b: 'x=y' }, 128 << 20]);
		assert.ok(Math.abs(Date.parse(box.expires) - Date.now() - 3600e3) < 60e3);
		await page.getByRole('button', { name: /^Expires/ }).click();
		await page.getByRole('dialog').getByLabel('From now').selectOption('0');
		await page.getByRole('dialog').getByRole('button', { name: 'Set' }).click();
		await until('no deadline', async () => (await api('GET', `/v1/boxes/${box.id}`)).expires === null);
	},

	async two_watch_one_terminal() {
		const box = await create({ name: 'shared' });
		const a = await open(),
			b = await open({ viewport: { width: 1000, height: 700 } });
		await goTo(a, `#/boxes/${box.id}/terminal`);
		await a.getByRole('button', { name: 'Open a terminal' }).click();
		await until('a terminal', async () => /started here/.test(await a.textContent('.term-status')));
		await a.locator('.screen').click();
		await a.keyboard.type('echo sum-$((40+2))\n');
		await onScreen(a, 'sum-42');
		await goTo(b, `#/boxes/${box.id}/terminal`); /* there is one: it is attached to by itself */
		await onScreen(b, 'sum-42');
		/* a question to the terminal has one answer, however many watch */
		await a.keyboard.type(
			"clear; printf '\\033[c'; read -rst 2 -d c x; read -rst 1 -d c y; echo answers:${#x}:${#y}:end\n"
		);
		await until('answers', async () => /answers:[1-9]\d*:0:end/.test(await screenText(a)));
		await b.locator('.screen').click();
		await b.keyboard.type('echo from-$((2*21))-b\n');
		await onScreen(a, 'from-42-b');
		await onScreen(b, 'from-42-b');
		/* who typed last decides the size */
		const size = (p) =>
			p.evaluate(() => {
				const t = document.getElementById('panel').terminal;
				return `${t.rows} ${t.cols}`;
			});
		await b.keyboard.type('clear; stty size\n');
		await onScreen(b, await size(b));
		await a.setViewportSize({ width: 900, height: 640 });
		await a.waitForTimeout(500);
		await a.keyboard.type('clear; stty size\n');
		await onScreen(a, await size(a));
		await shot(a, 'terminal');
		/* a program that was started elsewhere is in the list */
		await api('POST', `/v1/boxes/${box.id}/execs`, {
			command: 'while :; do echo tick; sleep 1; done',
			detach: true,
			tag: 'ticker'
		});
		await a.getByRole('button', { name: /ticker/ }).click();
		await onScreen(a, 'tick');
		/* one leaves, the other goes on */
		await a.close();
		await b.locator('.screen').click();
		await b.keyboard.type('exit\n');
		await until('the end is told', async () => /ended: status 0/.test(await b.textContent('.term-status')));
	},

	async files() {
		const box = await create({ name: 'files' });
		await run(
			box.id,
			'mkdir -p /root/dir/sub && printf "one\\ntwo\\n" >/root/dir/text && head -c 300000 /dev/urandom >/root/dir/blob && printf x >"/root/dir/$(printf "bad\\377name")"'
		);
		const page = await open();
		await goTo(page, `#/boxes/${box.id}/files`);
		await page.getByRole('button', { name: 'dir', exact: true }).click();
		await page.getByRole('button', { name: 'text', exact: true }).click();
		await page.waitForSelector('.preview pre');
		assert.equal(await page.textContent('.preview pre'), 'one\ntwo\n');
		await page.getByRole('button', { name: 'blob', exact: true }).click();
		await until('hexadecimal', async () => /^000000 {2}[0-9a-f]{2} /.test(await page.textContent('.preview pre')));
		await shot(page, 'files');
		await page.getByRole('button', { name: 'Close preview' }).click();
		const data = Buffer.from(Array.from({ length: 70000 }, (_, n) => (n * 7) & 255));
		await page.setInputFiles('input[type=file]', [
			{ name: 'up load.bin', mimeType: 'application/octet-stream', buffer: data },
			{ name: 'small', mimeType: 'text/plain', buffer: Buffer.from('s') }
		]);
		await page.getByRole('button', { name: 'up load.bin', exact: true }).waitFor();
		const menu = async (name, item) => {
			await page.getByRole('button', { name: `Actions for ${name}`, exact: true }).click();
			await page.getByRole('menuitem', { name: item }).click();
		};
		const [got] = await Promise.all([page.waitForEvent('download'), menu('up load.bin', 'Download')]);
		assert.equal(got.suggestedFilename(), 'up load.bin');
		assert.ok(readFileSync(await got.path()).equals(data), 'it comes back as it went');
		await menu('up load.bin', 'Rename…');
		await page.getByRole('dialog').getByLabel('New name').fill('other');
		await page.keyboard.press('Enter');
		await page.getByRole('button', { name: 'other', exact: true }).waitFor();
		await page.getByRole('button', { name: 'New folder' }).click();
		await page.getByRole('dialog').getByLabel('Name').fill('fresh');
		await page.keyboard.press('Enter');
		await page.getByRole('button', { name: 'fresh', exact: true }).waitFor();
		/* a name that is no text */
		await menu('bad\ufffdname', 'Rename…');
		await page.getByRole('dialog').getByLabel('New name').fill('good');
		await page.keyboard.press('Enter');
		await page.getByRole('button', { name: 'good', exact: true }).waitFor();
		await menu('sub', 'Delete…');
		await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
		await until('gone', async () => (await page.getByRole('button', { name: 'sub', exact: true }).count()) === 0);
		assert.equal((await run(box.id, 'cd /root/dir && ls')).stdout, 'blob\nfresh\ngood\nother\nsmall\ntext\n');
		/* what another does shows up by itself */
		await run(box.id, 'touch /root/dir/by-another');
		await page.getByRole('button', { name: 'by-another', exact: true }).waitFor();
		/* what a box serves never renders here */
		await run(box.id, 'echo "<script>fetch(1)</script>" >/root/dir/x.html');
		const type = await page.evaluate(async (id) => {
			const r = await fetch(`/v1/boxes/${id}/files?path=/root/dir/x.html`);
			return `${r.headers.get('content-type')} ${r.headers.get('x-content-type-options')}`;
		}, box.id);
		assert.equal(type, 'application/octet-stream nosniff');
	},

	async history() {
		const box = await create({ name: 'past' });
		await run(box.id, 'echo first >/root/a');
		await run(box.id, 'echo second >/root/a');
		const page = await open();
		await goTo(page, `#/boxes/${box.id}/history`);
		const point = (n) => page.locator(`.point-row[data-number="${n}"]`);
		await point(2).waitFor();
		await page.waitForSelector('.diff .add');
		assert.match(await page.textContent('.diff'), /-first\n\+second/);
		await page.getByRole('button', { name: 'Tag' }).click();
		await page.getByRole('dialog').getByLabel('Tag').fill('keep');
		await page.keyboard.press('Enter');
		await until('the tag', async () => /keep/.test(await point(2).textContent()));
		await point(1).click();
		await page.getByRole('heading', { name: 'Checkpoint 1' }).waitFor();
		await page.locator('.point').getByRole('button', { name: 'Roll back' }).click();
		await page.getByRole('dialog').getByRole('button', { name: 'Roll back' }).click();
		await page.waitForSelector('.toast:has-text("Rolled back")');
		await until('rolled back', async () => (await run(box.id, 'cat /root/a')).stdout === 'first\n');
		await run(box.id, 'echo third >/root/b'); /* a second branch */
		await until(
			'a branch that is drawn',
			async () => new Set(await page.$$eval('.graph .node', (all) => all.map((n) => n.getAttribute('cx')))).size > 1
		);
		await shot(page, 'history');
		await point(2).click();
		await page.locator('.point').getByRole('button', { name: 'Fork' }).click();
		await page.getByRole('dialog').getByLabel('Name of the new box').fill('branch');
		await page.keyboard.press('Enter');
		await page.waitForSelector('h1:text("branch")');
		const fork = (await api('GET', '/v1/boxes')).boxes.find((b) => b.name === 'branch');
		assert.equal((await run(fork.id, 'cat /root/a')).stdout, 'second\n');
		await goTo(page, `#/boxes/${box.id}/history`);
		await page.getByRole('button', { name: 'Undo last turn' }).click();
		await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
		await page.waitForSelector('.toast:has-text("Undone")');
		await until('undone', async () => (await run(box.id, 'ls /root/b; true')).stdout === '');
	},

	async allow_a_denial() {
		const box = await create({ name: 'net', policy: { version: 1, allow: ['nothing.example'] } });
		const page = await open();
		await goTo(page, `#/boxes/${box.id}/network`);
		await until('the policy', async () => /nothing\.example/.test(await page.textContent('.policy')));
		await run(box.id, 'getent hosts wanted.example; true');
		const row = page.locator('tr', { hasText: 'wanted.example' });
		await row.waitFor();
		await row.getByRole('button', { name: /Allow wanted\.example/ }).click();
		await until('allowed', async () => /Allowed/.test(await row.textContent()));
		const p = await api('GET', `/v1/boxes/${box.id}/policy`);
		assert.ok(
			p.policy.allow.some((r) => r.startsWith('wanted.example')) && p.policy.allow.includes('nothing.example'),
			JSON.stringify(p)
		);
		await shot(page, 'network');
		await page.getByRole('button', { name: 'Edit' }).click();
		await page.getByRole('dialog').getByLabel('JSON').fill('{"version": 1, "alow": []}');
		await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
		await until('a policy that makes no sense is refused', async () =>
			/alow/.test(await page.textContent('.problem'))
		);
		await page.keyboard.press('Escape');
		await page.getByRole('tab', { name: 'Journal' }).click();
		await page.locator('td .kind', { hasText: 'denial' }).first().waitFor();
		await page.getByRole('tab', { name: 'Events' }).click();
		await page.locator('td .kind', { hasText: 'net.denied' }).first().waitFor();
	},

	async keys_and_templates() {
		const page = await open();
		await goTo(page, '#/keys');
		await page.getByRole('button', { name: 'New key' }).click();
		await page.getByRole('dialog').getByLabel('Name').fill('robot');
		await page.keyboard.press('Enter');
		await page.getByRole('heading', { name: 'The new key' }).waitFor();
		const made = (await page.getByRole('dialog').locator('pre').textContent()).trim();
		const asked = await fetch(`${url}/v1/whoami`, { headers: { 'X-API-Key': made } });
		assert.equal((await asked.json()).name, 'robot');
		await page.getByRole('dialog').getByRole('button', { name: 'Done' }).click();
		await page.getByRole('button', { name: 'Revoke robot' }).click();
		await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
		await until(
			'revoked',
			async () => (await fetch(`${url}/v1/whoami`, { headers: { 'X-API-Key': made } })).status === 401
		);
		await goTo(page, '#/templates');
		await page.getByRole('heading', { name: 'Templates' }).waitFor();
		/* who is no admin sees no keys */
		const other = await api('POST', '/v1/keys', { name: 'plain', scopes: ['boxes', 'read'] });
		const page2 = await open({ signIn: false });
		await page2.fill('#key', other.key);
		await page2.keyboard.press('Enter');
		await page2.waitForSelector('.frame');
		assert.equal(await page2.locator('nav a', { hasText: 'Keys' }).count(), 0);
		await goTo(page2, '#/keys');
		await page2.getByRole('heading', { name: 'Boxes', exact: true }).waitFor();
	},

	async light_and_dark() {
		const bg = (page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
		const light = await open({ colorScheme: 'light' }),
			dark = await open({ colorScheme: 'dark' });
		const [l, d] = [await bg(light), await bg(dark)];
		assert.notEqual(l, d, 'the system decides');
		await light.click('button[aria-label="Use the dark theme"]');
		assert.equal(await bg(light), d);
		await light.reload();
		await light.waitForSelector('.frame');
		assert.equal(await bg(light), d, 'the choice is kept');
		await light.click('button[aria-label="Use the light theme"]');
		assert.equal(await bg(light), l);
		const still = await open({ reducedMotion: 'reduce' });
		assert.equal(
			await still.evaluate(() => {
				const e = document.createElement('p');
				e.className = 'link';
				e.dataset.link = 'waiting';
				const dot = document.createElement('span');
				dot.className = 'dot';
				e.append(dot);
				document.body.append(e);
				return getComputedStyle(dot).animationName;
			}),
			'none'
		);
	},

	async ports() {
		const box = await create({ name: 'web' });
		const page = await open();
		await goTo(page, `#/boxes/${box.id}/details`);
		await page.getByRole('button', { name: 'Share a port' }).click();
		await page.getByRole('dialog').getByLabel('Port').fill('8000');
		await page.getByRole('dialog').getByLabel('For').selectOption('public');
		await page.getByRole('dialog').getByRole('button', { name: 'Share' }).click();
		const link = page.locator('.ports a');
		await link.waitFor();
		assert.match(await link.getAttribute('href'), new RegExp(`^http://8000-${box.id}\\.`));
		assert.match(await link.getAttribute('rel'), /noopener/);
		await page.getByRole('button', { name: 'Stop sharing port 8000' }).click();
		await page.getByRole('dialog').getByRole('button', { name: 'Stop sharing' }).click();
		await until('no port', async () => (await api('GET', `/v1/boxes/${box.id}/ports`)).ports.length === 0);
	},

	async narrow() {
		const box = await create({
			name: 'a-name-that-is-rather-long-for-a-telephone-in-the-hand',
			labels: { a: 'b'.repeat(100) }
		});
		await run(box.id, 'echo x >/root/f');
		const page = await open({ viewport: { width: 400, height: 800 } });
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
			await page.waitForTimeout(400);
			assert.ok(
				await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
				`${hash} is wider than 400 px`
			);
		}
	},

	/* Where programs can be saved (serve_memory.sh asks): a box goes to disk, and comes back with them. */
	async on_disk() {
		const box = await create({ name: 'sleeper' });
		await run(box.id, 'setsid sleep 4711 >/dev/null 2>&1 & sleep 0.1');
		const page = await open();
		const choose = async (label) => {
			await rowOf(page, 'sleeper').locator('.c-act button').click();
			await page.getByRole('menuitem', { name: label }).click();
		};
		await rowOf(page, 'sleeper').locator('.state', { hasText: 'running' }).waitFor();
		await choose('Pause to disk');
		await rowOf(page, 'sleeper').locator('.state', { hasText: 'on disk' }).waitFor();
		assert.equal((await api('GET', `/v1/boxes/${box.id}`)).on_disk, true);
		await shot(page, 'on-disk');
		await page.fill('#filter', 'on disk');
		await rowOf(page, 'sleeper').waitFor();
		await choose('Resume');
		await page.fill('#filter', '');
		await rowOf(page, 'sleeper').locator('.state', { hasText: 'running' }).waitFor();
		assert.equal((await run(box.id, 'pgrep -c -f "sleep 471[1]"')).stdout.trim(), '1');
		await goTo(page, `#/boxes/${box.id}/history`);
		await page.getByRole('button', { name: 'Checkpoint now' }).click();
		await page.getByLabel('With the programs that run').check();
		await page.getByRole('button', { name: 'Make' }).click();
		await page.locator('.point-row .kind', { hasText: 'programs' }).first().waitFor();
		await shot(page, 'full-checkpoint');
	},

	async widths() {
		for (let i = 0; i < 3; i++)
			await create({
				name: `a-rather-long-name-of-a-box-${i}`,
				labels: { team: 'research-and-development', task: '4711-a-long-one', model: 'some-model' },
				ttl_ms: 3600000
			});
		const asleep = await create({ name: 'asleep' });
		await api('POST', `/v1/boxes/${asleep.id}/hibernate`); /* the longest of the states */
		for (const width of [1280, 1024, 800]) {
			const page = await open({ viewport: { width, height: 800 } });
			await rowOf(page, 'box-2').waitFor();
			const cut = await page.evaluate(() =>
				[document.documentElement, ...document.querySelectorAll('.wrap')]
					.filter((e) => e.scrollWidth > e.clientWidth)
					.map((e) => `${e.className || e.tagName} ${e.scrollWidth} > ${e.clientWidth}`)
			);
			assert.deepEqual(cut, [], `cut at ${width} px`);
			const more = await rowOf(page, 'box-2').locator('.c-act button').boundingBox();
			assert.ok(more && more.x + more.width <= width, `the actions are out of sight at ${width} px`);
			for (const name of ['c-name', 'c-state', 'c-labels', 'c-cpu', 'c-mem', 'c-age', 'c-cost']) {
				const b = await rowOf(page, 'box-2').locator(`.${name}`).boundingBox();
				assert.ok(b && b.width > 40, `${name} has no room at ${width} px`);
			}
			const clipped = await page.evaluate(() =>
				[...document.querySelectorAll('table.boxes td:is(.c-state, .c-mem, .c-age, .c-cost)')]
					.filter((e) => e.scrollWidth > e.clientWidth)
					.map((e) => e.textContent)
			);
			assert.deepEqual(clipped, [], `words are cut at ${width} px`);
			await shot(page, `boxes-${width}`);
			await page.close();
		}
	},

	async keyboard_alone() {
		await create({ name: 'one' });
		await create({ name: 'two' });
		const page = await open();
		const press = async (...keys) => {
			for (const k of keys) await page.keyboard.press(k);
		};
		const at = () =>
			page.evaluate(() => {
				const e = document.activeElement;
				return e.getAttribute('aria-label') || e.textContent.trim() || e.id || e.tagName;
			});
		const tabTo = async (what) => {
			for (let n = 0; n < 60; n++) {
				if (what.test(await at())) return;
				await press('Tab');
			}
			throw new Error(`Tab never comes to ${what}`);
		};
		await rowOf(page, 'two').waitFor();
		await page.evaluate(() => document.activeElement.blur());
		await page.reload();
		await rowOf(page, 'two').waitFor();
		await press('Tab');
		assert.equal(await at(), 'Skip to content');
		await press('Enter');
		assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
		await press('Tab');
		assert.equal(await at(), 'New box');
		await press('Enter');
		await page.waitForSelector('dialog[open]');
		assert.ok(
			await page.evaluate(() => document.querySelector('dialog').contains(document.activeElement)),
			'focus is in the dialog'
		);
		for (let n = 0; n < 14; n++) {
			/* round and round inside */
			await press('Tab');
			assert.ok(
				await page.evaluate(
					() =>
						document.activeElement === document.body ||
						document.querySelector('dialog').contains(document.activeElement)
				),
				'focus stays in the dialog'
			);
		}
		await press('Escape');
		await until('closed', async () => (await page.locator('dialog').count()) === 0);
		assert.equal(await at(), 'New box', 'focus comes back');
		/* made in the same second, they are in any order */
		const [first, second] = await page.locator('table.boxes a.name').allTextContents();
		await tabTo(new RegExp(`^${first}$`));
		await press('ArrowDown');
		assert.equal(await at(), second);
		await press('Tab');
		assert.equal(await at(), `Actions for ${second}`);
		await press('ArrowDown');
		assert.match(await at(), /Pause/);
		await press('ArrowDown', 'End');
		assert.match(await at(), /Delete/);
		await press('Escape');
		assert.equal(await at(), `Actions for ${second}`);
		await press('Shift+Tab', 'Enter');
		await page.waitForSelector(`h1:text("${second}")`);
		await tabTo(/^Terminal$/);
		await press('ArrowRight', 'ArrowRight');
		assert.equal(await at(), 'History');
		assert.match(page.url(), /history$/);
		await press('Home');
		/* everything that takes focus shows it */
		for (let n = 0; n < 40; n++) {
			await press('Tab');
			const seen = await page.evaluate(() => {
				const e = document.activeElement,
					s = getComputedStyle(e),
					r = e.getBoundingClientRect();
				return (
					e === document.body ||
					(s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && r.width > 0) ||
					e.textContent
				);
			});
			assert.equal(seen, true, `no focus ring: ${seen}`);
		}
		/* the terminal takes all keys, and gives focus back on its own */
		await tabTo(/^Open a terminal$/);
		await press('Enter');
		await until('a terminal', async () => /started here/.test(await page.textContent('.term-status')));
		await until('focus in it', async () => (await at()) === 'Terminal input');
		await page.keyboard.type('echo ty$((1))ped\n');
		await onScreen(page, 'ty1ped');
		await press('Control+Shift+Escape');
		assert.equal(await at(), 'Terminal');
	},

	/* tests/cli/serve_ui.sh stops the server and starts it again when we ask for it */
	async comes_back_by_itself() {
		const box = await create({ name: 'stays' });
		const page = await open();
		await goTo(page, `#/boxes/${box.id}/terminal`);
		await page.getByRole('button', { name: 'Open a terminal' }).click();
		await until('a terminal', async () => /started here/.test(await page.textContent('.term-status')));
		await page.locator('.screen').click();
		await page.keyboard.type('echo be$((1))fore\n');
		await onScreen(page, 'be1fore');
		writeFileSync(join(tmp, 'want-down'), '');
		await page.waitForSelector('.link[data-link=broken]', { timeout: 30000 });
		assert.match(await page.textContent('.link'), /Reconnecting/);
		await until('down', () => existsSync(join(tmp, 'is-down')));
		writeFileSync(join(tmp, 'want-up'), '');
		await page.waitForSelector('.link[data-link=live]', { timeout: 40000 });
		await until(
			'the same program',
			async () =>
				/Program \d+/.test(await page.textContent('.term-status')) && (await screenText(page)).includes('be1fore'),
			30
		);
		await page.locator('.screen').click();
		await page.keyboard.type('echo af$((1))ter\n');
		await onScreen(page, 'af1ter');
	}
};

await main(tests, process.argv[2]);
