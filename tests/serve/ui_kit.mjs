/* For the tests of the page: a browser, and the server to hold it against. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

export const { DEN_URL: url, DEN_KEY: key, TMP: tmp = '/tmp' } = process.env;
const { CHROMIUM: exe = '/usr/bin/chromium', SHOTS: shots } = process.env;
const FLAGS = [
	'--headless',
	'--no-sandbox',
	'--disable-gpu',
	'--disable-quic',
	'--no-first-run',
	'--disable-background-networking',
	'--disable-component-update',
	'--disable-sync'
];
const browser = await chromium.launch({ executablePath: exe, args: FLAGS });
const pages = [];

/* ---- the server ---- */
export async function api(method, path, body) {
	const res = await fetch(url + path, {
		method,
		headers: { Authorization: `Bearer ${key}`, ...(body ? { 'Content-Type': 'application/json' } : {}) },
		body: body ? JSON.stringify(body) : undefined
	});
	const text = await res.text();
	assert.ok(res.ok, `${method} ${path}: ${res.status} ${text}`);
	return text ? JSON.parse(text) : null;
}
export const create = (spec) => api('POST', '/v1/boxes', spec);
export const run = (id, command) => api('POST', `/v1/boxes/${id}/execs`, { command });

/* ---- the browser ---- */
export async function open({ signIn = true, ...opt } = {}) {
	const ctx = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...opt });
	const page = await ctx.newPage();
	page.bad = [];
	page.on('request', (r) => {
		if (new URL(r.url()).origin !== url && !r.url().startsWith('blob:')) page.bad.push(`request to ${r.url()}`);
	});
	page.on('pageerror', (e) => page.bad.push(`script: ${e.stack}`));
	page.on('dialog', (d) => {
		page.bad.push(`a box opened a dialog: ${d.message()}`);
		d.dismiss();
	});
	page.on('console', (m) => {
		if (/Content Security Policy|Refused to|TrustedHTML/.test(m.text())) page.bad.push(m.text());
	});
	await page.addInitScript(() => {
		window.violations = [];
		document.addEventListener('securitypolicyviolation', (e) =>
			window.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`)
		);
	});
	pages.push(page);
	await page.goto(`${url}/ui`);
	await page.waitForSelector('#key');
	if (signIn) {
		await page.fill('#key', key);
		await page.keyboard.press('Enter');
		await page.waitForSelector('.link[data-link=live]');
	}
	return page;
}
export const goTo = (page, hash) =>
	page.evaluate((x) => {
		location.hash = x;
	}, hash);
export const rowOf = (page, name) => page.locator('table.boxes tbody tr', { hasText: name });
export const screenText = (page) =>
	page.evaluate(() => {
		const b = document.getElementById('panel').terminal?.buffer.active;
		return b ? Array.from({ length: b.length }, (_, n) => b.getLine(n).translateToString(true)).join('\n') : '';
	});
export async function until(what, fn, seconds = 15) {
	const end = Date.now() + seconds * 1000 * Number(process.env.DEN_TEST_SLOW ?? 1);
	for (;;) {
		const got = await fn();
		if (got) return got;
		if (Date.now() > end) throw new Error(`not in time: ${what}`);
		await new Promise((r) => setTimeout(r, 50));
	}
}
export const onScreen = (page, text) =>
	until(`"${text}" on the terminal`, async () => (await screenText(page)).includes(text));
export async function shot(page, name) {
	if (shots) await page.screenshot({ path: join(shots, `${name}.png`) });
}

/*
 * Whatever a test does, at its end: no request left the server's origin, the policy stopped nothing, no script
 * failed, and nothing that a box made up ran.
 */
export async function main(tests, name) {
	if (!tests[name]) {
		console.error(`ui.mjs: '${name}' is none of ${Object.keys(tests).join(', ')}`);
		process.exit(2);
	}
	let status = 0;
	try {
		await tests[name]();
		for (const page of pages.filter((p) => !p.isClosed())) {
			page.bad.push(...(await page.evaluate(() => window.violations ?? [])));
			assert.deepEqual(page.bad, [], 'nothing was stopped, nothing failed, nothing left');
		}
	} catch (err) {
		console.error(err.stack ?? err);
		for (const [n, page] of pages.filter((p) => !p.isClosed()).entries()) {
			console.error(`page ${n} at ${page.url()}`, page.bad);
			await page.screenshot({ path: join(tmp, `page${n}.png`) }).catch(() => {});
		}
		status = 1;
	}
	await browser.close();
	process.exit(status);
}
