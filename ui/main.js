/* The frame of the page: who is signed in, where we are, how the connection is. */
import { call, get, onSignedOut } from './api.js';
import { announce, button, complain, h, icon, put } from './dom.js';
import { close, on, open, store } from './store.js';
import { boxesView } from './view-boxes.js';
import { boxView } from './view-box.js';
import { eventsView } from './view-events.js';
import { keysView } from './view-keys.js';
import { templatesView } from './view-templates.js';

const app = document.getElementById('app');

/* A view is drawn into `main`; signal is aborted when it is left, and ends its timers and listeners. */
const views = [
	{ at: /^\/?$/, nav: 'boxes', title: 'Boxes', run: boxesView },
	{ at: /^\/boxes\/([^/]+)(?:\/([a-z]+))?(?:\?(.*))?$/, nav: 'boxes', title: 'Box', run: boxView },
	{ at: /^\/events$/, nav: 'events', title: 'Events', run: eventsView },
	{ at: /^\/templates$/, nav: 'templates', title: 'Templates', run: templatesView },
	{ at: /^\/keys$/, nav: 'keys', title: 'Keys', run: keysView, admin: true }
];
const places = [
	{ id: 'boxes', label: 'Boxes', icon: 'box', href: '#/' },
	{ id: 'events', label: 'Events', icon: 'pulse', href: '#/events' },
	{ id: 'templates', label: 'Templates', icon: 'layers', href: '#/templates' },
	{ id: 'keys', label: 'Keys', icon: 'key', href: '#/keys', admin: true }
];

let main = null,
	nav = null,
	leave = null,
	here = null;

/* ---- theme ---- */
const dark = matchMedia('(prefers-color-scheme: dark)');
export const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light')) === 'dark';

function themeButton() {
	const b = button('', { bare: true, kind: 'ghost theme' }, () => {
		const to = isDark() ? 'light' : 'dark';
		document.documentElement.dataset.theme = to;
		try {
			localStorage.setItem('den.theme', to);
		} catch {
			/* then for this visit only */
		}
		draw();
		announce(to === 'dark' ? 'Dark theme' : 'Light theme');
	});
	function draw() {
		const label = isDark() ? 'Use the light theme' : 'Use the dark theme';
		b.setAttribute('aria-label', label);
		b.title = label;
		put(b, icon(isDark() ? 'sun' : 'moon'));
		document.dispatchEvent(new Event('den:theme'));
	}
	dark.addEventListener('change', draw);
	draw();
	return b;
}

/* ---- the connection ---- */
function linkState() {
	const dot = h('span', { class: 'dot' }),
		text = h('span', {});
	const el = h('p', { class: 'link', role: 'status' }, dot, text);
	const words = {
		waiting: 'Connecting…',
		live: 'Live',
		broken: 'Reconnecting, polling',
		off: 'Signed out',
		asleep: 'Asleep'
	};
	function draw() {
		el.dataset.link = store.link;
		text.textContent = words[store.link] ?? store.link;
		el.title =
			store.link === 'broken' ? 'The stream of events broke. Until it is back the page asks every few seconds.' : '';
	}
	on('link', draw);
	draw();
	return el;
}

/* ---- frame ---- */
function frame() {
	nav = h(
		'ul',
		{},
		places
			.filter((p) => !p.admin || store.who.admin)
			.map((p) => h('li', {}, h('a', { href: p.href, data: { place: p.id } }, icon(p.icon), h('span', {}, p.label))))
	);
	main = h('main', { id: 'main', tabindex: -1 });
	const who = store.who.name || store.who.key || '';
	put(
		app,
		h(
			'div',
			{ class: 'frame' },
			h(
				'header',
				{ class: 'side' },
				h('a', { class: 'brand', href: '#/', 'aria-label': 'den, all boxes' }, icon('box'), h('span', {}, 'den')),
				h('nav', { 'aria-label': 'Main' }, nav),
				h(
					'div',
					{ class: 'foot' },
					linkState(),
					h(
						'p',
						{ class: 'who' },
						h('span', {}, who),
						h('small', {}, store.who.org ?? '', store.who.admin ? ' · admin' : '')
					),
					h(
						'div',
						{ class: 'row' },
						themeButton(),
						button('Sign out', { icon: 'out', bare: true, kind: 'ghost' }, signOut)
					)
				)
			),
			main
		)
	);
}

function go() {
	const hash = location.hash;
	if (hash === '#main') {
		/* the skip link */
		history.replaceState(null, '', here ?? '#/');
		main?.focus();
		return;
	}
	if (!store.who) return;
	const path = hash.replace(/^#/, '') || '/';
	const view = views.find((v) => v.at.test(path) && (!v.admin || store.who.admin));
	here = hash || '#/';
	if (!view) {
		location.replace('#/');
		return;
	}
	for (const a of nav.querySelectorAll('a')) {
		if (a.dataset.place === view.nav) a.setAttribute('aria-current', 'page');
		else a.removeAttribute('aria-current');
	}
	const args = view.at
		.exec(path)
		.slice(1)
		.map((a) => (a === undefined ? undefined : decodeURIComponent(a)));
	/* a view that is shown already may only have to turn a page */
	if (leave?.view === view && leave.turn?.(...args)) return;
	const first = !leave;
	leave?.abort();
	leave = new AbortController();
	leave.view = view;
	document.title = `${view.title} · den`;
	put(main);
	leave.turn = view.run(main, leave.signal, ...args) ?? null;
	if (!first) {
		main.focus({ preventScroll: true });
		scrollTo(0, 0);
	}
}

/* ---- signing in and out ---- */
function signIn(why) {
	close();
	leave?.abort();
	leave = null;
	store.who = null;
	document.title = 'Sign in · den';
	const key = h('input', {
		type: 'password',
		name: 'key',
		id: 'key',
		required: true,
		autocomplete: 'current-password',
		spellcheck: 'false',
		autocapitalize: 'off',
		placeholder: 'den_…',
		'aria-describedby': 'key-hint problem'
	});
	const problem = h('div', { class: 'problem', id: 'problem', role: 'alert' }, why ? h('strong', {}, why) : null);
	const go1 = h('button', { type: 'submit', class: 'button primary' }, h('span', {}, 'Sign in'));
	const form = h(
		'form',
		{ class: 'card', method: 'post' },
		h('div', { class: 'brand' }, icon('box'), h('span', {}, 'den')),
		h('h1', {}, 'Sign in'),
		h(
			'div',
			{ class: 'field' },
			h('label', { for: 'key' }, 'Key'),
			key,
			h(
				'p',
				{ class: 'hint', id: 'key-hint' },
				'On the server, ',
				h('code', {}, 'den key create'),
				' makes one. It stays out of this page\u2019s reach: the browser keeps a cookie that scripts cannot read.'
			)
		),
		problem,
		go1
	);
	form.addEventListener('submit', async (e) => {
		e.preventDefault();
		if (go1.getAttribute('aria-disabled')) return;
		if (!key.value.trim()) {
			put(problem, h('strong', {}, 'Type or paste a key first.'));
			key.focus();
			return;
		}
		go1.setAttribute('aria-disabled', 'true');
		try {
			await call('POST', '/ui/session', { json: { key: key.value.trim() } });
			await start();
		} catch (err) {
			put(problem, h('strong', {}, err.message), err.next ? h('p', {}, err.next) : null);
			key.select();
		} finally {
			go1.removeAttribute('aria-disabled');
		}
	});
	put(
		app,
		h('main', { id: 'main', class: 'login', tabindex: -1 }, form, h('div', { class: 'corner' }, themeButton()))
	);
	key.focus();
}

async function signOut() {
	try {
		await call('DELETE', '/ui/session');
	} catch (err) {
		complain(err);
	}
	signIn('');
}

async function start() {
	try {
		if (!(await get('/ui/session')).signed_in) {
			signIn('');
			return;
		}
		store.who = await get('/v1/whoami');
	} catch (err) {
		if (err.status === 401) signIn('');
		else
			put(
				app,
				h(
					'main',
					{ id: 'main', class: 'login', tabindex: -1 },
					h(
						'div',
						{ class: 'card' },
						h('h1', {}, 'den'),
						h('p', {}, err.message),
						h('p', {}, err.next ?? ''),
						button('Try again', { kind: 'primary' }, start)
					)
				)
			);
		return;
	}
	store.boxes.clear();
	store.events.length = 0;
	store.loaded = false;
	frame();
	open();
	go();
}

onSignedOut(() => {
	if (store.who) signIn('The session has ended. Sign in again.');
});
addEventListener('hashchange', go);
start();
