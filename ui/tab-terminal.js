/*
 * Terminals. Each is a program in the box that anybody may attach to: what one types all see. The window
 * that was typed into last decides the size.
 */
import { boxPath, getAll, post, socketUrl } from './api.js';
import { announce, busy, button, h, icon, put, say } from './dom.js';
import { ago, argv } from './format.js';
import { on, store } from './store.js';
import { empty } from './widgets.js';

const RETRY_MS = [500, 1000, 2000, 5000];
const REPLAY_MS = 1000; /* in which what comes after attaching is taken for old output */
const themes = {
	light: {
		background: '#fdfdfc',
		foreground: '#24292e',
		cursor: '#0e6b58',
		cursorAccent: '#ffffff',
		selectionBackground: '#bfe3d9',
		black: '#24292e',
		red: '#b3261e',
		green: '#1a6b34',
		yellow: '#80590a',
		blue: '#0b57b0',
		magenta: '#7b3aa8',
		cyan: '#0b6a75',
		white: '#5c6570',
		brightBlack: '#57606a',
		brightRed: '#c4302b',
		brightGreen: '#1f7a3d',
		brightYellow: '#8a6100',
		brightBlue: '#1563c2',
		brightMagenta: '#8a48b8',
		brightCyan: '#0d7783',
		brightWhite: '#24292e'
	},
	dark: {
		background: '#0f1113',
		foreground: '#dfe3e6',
		cursor: '#53cbae',
		cursorAccent: '#0f1113',
		selectionBackground: '#2c5b50',
		black: '#3a4048',
		red: '#ff8a80',
		green: '#7fd99a',
		yellow: '#e5c07b',
		blue: '#82b1ff',
		magenta: '#d0a3ff',
		cyan: '#79d5e0',
		white: '#dfe3e6',
		brightBlack: '#8b949e',
		brightRed: '#ffa198',
		brightGreen: '#9be9b0',
		brightYellow: '#f2d08f',
		brightBlue: '#a5c8ff',
		brightMagenta: '#e2c0ff',
		brightCyan: '#a1e8f0',
		brightWhite: '#ffffff'
	}
};
const isDark = () =>
	(document.documentElement.dataset.theme ??
		(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';

export function terminalTab(panel, box, signal) {
	const screen = h('div', { class: 'screen' });
	const list = h('ul', { class: 'execs' });
	const status = h('p', { class: 'term-status', role: 'status' });
	const fresh = button('New terminal', { icon: 'plus' }, () => busy(fresh, () => start({})));
	const reader = h('input', { type: 'checkbox', id: 'reader' });
	const none = h('div', {});
	let term = null,
		fit = null,
		ws = null,
		pid = null,
		mine = false,
		tries = 0,
		ended = false,
		sent = '',
		retry = 0,
		execs = [],
		trouble = '',
		quietUntil = 0;

	put(
		panel,
		h('h2', { class: 'unseen' }, 'Terminal'),
		h(
			'div',
			{ class: 'term' },
			h(
				'div',
				{ class: 'term-main' },
				screen,
				none,
				h(
					'div',
					{ class: 'term-foot' },
					status,
					h('label', { class: 'check', for: 'reader' }, reader, 'Screen reader'),
					h('p', { class: 'hint' }, 'Ctrl+Shift+Escape leaves the terminal')
				)
			),
			h(
				'aside',
				{ 'aria-label': 'Running programs' },
				h('div', { class: 'row between' }, h('h3', {}, 'Running'), fresh),
				list
			)
		)
	);

	/* What somebody would call it: a shell that was started by "sh -c" is that shell. */
	function called(e) {
		const a = e.argv ?? [];
		if (a[0] === '/bin/sh' && a[1] === '-c' && a.length === 3)
			return a[2].startsWith('exec "${SHELL') ? 'shell' : a[2];
		return argv(a);
	}

	const state = () => store.boxes.get(box.id)?.state ?? box.state;

	/* the library is large and only needed here */
	async function ready() {
		if (term) return;
		const { Terminal, FitAddon } = await import('./xterm-csp.js');
		if (!document.querySelector('link[data-xterm]')) {
			const css = h('link', {
				rel: 'stylesheet',
				href: new URL('./xterm.css', import.meta.url).href,
				'data-xterm': true
			});
			await new Promise((done) => {
				css.onload = css.onerror = done;
				document.head.append(css);
			});
		}
		if (signal.aborted) return;
		try {
			reader.checked = localStorage.getItem('den.reader') === '1';
		} catch {
			/* then it is off */
		}
		term = new Terminal({
			fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono') || 'monospace',
			fontSize: 13,
			scrollback: 5000,
			theme: themes[isDark() ? 'dark' : 'light'],
			screenReaderMode: reader.checked,
			minimumContrastRatio: 4.5,
			cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
			linkHandler: { activate() {}, allowNonHttpProtocols: false }
		});
		/* Output is hostile: no clipboard (52), no links (8), no title (0, 2). */
		for (const osc of [0, 1, 2, 8, 52]) term.parser.registerOscHandler(osc, () => true);
		onlyOneAnswers();
		fit = new FitAddon();
		term.loadAddon(fit);
		term.open(screen);
		term.textarea.setAttribute('aria-label', 'Terminal input');
		term.attachCustomKeyEventHandler((e) => {
			if (e.type === 'keydown' && e.key === 'Escape' && e.ctrlKey && e.shiftKey) {
				e.preventDefault(); /* the way out for who has no mouse */
				document.getElementById('tab-terminal')?.focus();
				return false;
			}
			return true;
		});
		term.onData((d) => type(new TextEncoder().encode(d)));
		term.onBinary((d) => type(Uint8Array.from(d, (c) => c.charCodeAt(0))));
		const look = new ResizeObserver(() => fitNow());
		look.observe(screen);
		document.addEventListener(
			'den:theme',
			() => {
				term.options.theme = themes[isDark() ? 'dark' : 'light'];
			},
			{ signal }
		);
		signal.addEventListener('abort', () => {
			look.disconnect();
			term.dispose();
		});
		fitNow();
		panel.terminal = term; /* tests read the screen */
	}

	/*
	 * A program may ask its terminal things, and what the terminal answers is typed. With several watching, and
	 * when old output is played again, nobody may answer but who types here now.
	 */
	function onlyOneAnswers() {
		const still = () => !mine || performance.now() < quietUntil;
		for (const osc of [4, 10, 11, 12]) term.parser.registerOscHandler(osc, (data) => data.includes('?') && still());
		for (const id of [
			{ final: 'c' },
			{ prefix: '>', final: 'c' },
			{ prefix: '=', final: 'c' },
			{ final: 'n' },
			{ prefix: '?', final: 'n' },
			{ intermediates: '$', final: 'p' },
			{ prefix: '?', intermediates: '$', final: 'p' },
			{ prefix: '>', final: 'q' }
		])
			term.parser.registerCsiHandler(id, still);
		term.parser.registerDcsHandler({ intermediates: '$', final: 'q' }, still);
	}

	function fitNow() {
		if (!term || !screen.clientHeight) return;
		fit.fit();
		if (mine) sendSize();
	}

	function sendSize() {
		const size = JSON.stringify({ resize: { rows: term.rows, cols: term.cols } });
		if (ws?.readyState === WebSocket.OPEN && size !== sent) {
			sent = size;
			ws.send(size);
		}
	}

	function type(data) {
		if (ws?.readyState !== WebSocket.OPEN) return;
		if (!mine) {
			/* who types decides the size */
			mine = true;
			sendSize();
		}
		ws.send(data);
	}

	function tell(text, kind = '') {
		say(status, text);
		status.dataset.kind = kind;
	}

	function connect(query) {
		clearTimeout(retry);
		ws?.close();
		sent = trouble = '';
		const s = (ws = new WebSocket(socketUrl(boxPath(box.id, '/terminal'), query)));
		s.binaryType = 'arraybuffer';
		s.onopen = () => {
			tries = 0;
			if (mine && query.attach) sendSize();
		};
		s.onmessage = (m) => {
			if (s !== ws) return;
			if (typeof m.data !== 'string') {
				term.write(new Uint8Array(m.data));
				return;
			}
			const e = JSON.parse(m.data);
			if (e.started) {
				pid = e.started.pid;
				tell(`Program ${pid}, ${mine ? 'started here' : 'shared'}`, 'live');
				drawExecs();
				loadExecs();
			} else if (e.exit) {
				ended = true;
				const how = e.exit.exited === false ? `signal ${e.exit.status}` : `status ${e.exit.status ?? 0}`;
				tell(`Program ${pid} ended: ${how}${e.exit.reason ? ` (${e.exit.reason})` : ''}`, 'ended');
				loadExecs();
			} else if (e.error) {
				trouble = e.error.message ?? 'That did not work.';
				tell(trouble, 'bad');
			}
		};
		s.onclose = (e) => {
			if (s !== ws || signal.aborted || ended) return;
			if (trouble && e.code === 1000) {
				ended = true;
				return;
			}
			if (pid === null && tries >= 2) {
				tell(e.reason || 'The terminal could not be opened.', 'bad');
				return;
			}
			const wait = RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)];
			tell('Connection lost, trying again…', 'bad');
			retry = setTimeout(() => {
				if (pid !== null) attach(pid, true);
				else connect(query);
			}, wait);
		};
	}

	async function start(query) {
		if (state() !== 'running') {
			drawNone();
			return;
		}
		show(true);
		await ready();
		if (signal.aborted) return;
		term.reset();
		pid = null;
		ended = false;
		mine = true;
		fitNow();
		tell('Starting…');
		connect({ rows: term.rows, cols: term.cols, ...query });
		term.focus();
	}

	async function attach(to, again) {
		show(true);
		await ready();
		if (signal.aborted) return;
		term.reset();
		pid = to;
		ended = false;
		if (!again) mine = false;
		fitNow();
		quietUntil = performance.now() + REPLAY_MS;
		tell('Attaching…');
		connect({ attach: to });
		drawExecs();
		if (!again) term.focus();
	}

	function show(yes) {
		screen.hidden = !yes;
		none.hidden = yes;
	}

	function drawNone() {
		show(false);
		const st = state();
		const run = button(
			st === 'running' ? 'Open a terminal' : st === 'paused' ? 'Resume it' : 'Start it',
			{ kind: 'primary', icon: st === 'running' ? 'term' : 'play' },
			() =>
				busy(run, async () => {
					if (st === 'running') await start({});
					else await post(boxPath(box.id, st === 'paused' ? '/resume' : '/start'));
				})
		);
		put(
			none,
			st === 'running'
				? empty('No terminal yet', 'Open one: everybody who watches this box sees it, and can type into it.', run)
				: empty(
						`This box is ${st}`,
						'Programs run only in a box that is running.',
						['paused', 'stopped'].includes(st) ? run : null
					)
		);
	}

	function drawExecs() {
		const running = execs.filter((e) => e.running);
		const had = list.contains(document.activeElement) ? document.activeElement.dataset.pid : null;
		put(
			list,
			running.map((e) =>
				h(
					'li',
					{ class: e.pid === pid ? 'on' : null },
					h(
						'button',
						{
							type: 'button',
							data: { pid: e.pid },
							'aria-pressed': String(e.pid === pid && !ended),
							onclick: () => attach(e.pid),
							title: argv(e.argv)
						},
						icon(e.tty ? 'term' : 'pulse'),
						h(
							'span',
							{},
							h('b', {}, e.tag || called(e) || `pid ${e.pid}`),
							h('small', {}, `pid ${e.pid} · ${e.user ?? ''} · ${ago(e.started)}`)
						)
					)
				)
			)
		);
		if (!running.length) put(list, h('li', { class: 'quiet' }, 'Nothing was started here that still runs.'));
		if (had) list.querySelector(`[data-pid="${had}"]`)?.focus();
	}

	async function loadExecs() {
		if (state() !== 'running' && state() !== 'paused') {
			execs = [];
			drawExecs();
			return;
		}
		try {
			execs = await getAll(boxPath(box.id, '/execs'), 'execs', signal);
		} catch {
			return; /* the next event asks again */
		}
		if (!signal.aborted) drawExecs();
	}

	reader.addEventListener('change', () => {
		if (term) term.options.screenReaderMode = reader.checked;
		try {
			localStorage.setItem('den.reader', reader.checked ? '1' : '0');
		} catch {
			/* for this visit only */
		}
		announce(reader.checked ? 'Screen reader mode on' : 'Screen reader mode off');
	});

	let soon = 0,
		was = state();
	on(
		'event',
		(e) => {
			if (e.box === box.id && e.kind.startsWith('exec.')) {
				clearTimeout(soon);
				soon = setTimeout(loadExecs, 200);
			}
		},
		signal
	);
	on(
		'boxes',
		() => {
			if (state() === was) return;
			was = state();
			if (pid === null || was === 'stopped') drawNone();
			loadExecs();
		},
		signal
	);
	signal.addEventListener('abort', () => {
		clearTimeout(retry);
		clearTimeout(soon);
		ws?.close();
	});

	drawNone();
	loadExecs().then(() => {
		/* somebody has one open: watch that */
		const shared = execs.filter((e) => e.running && e.tty).pop();
		if (shared && !signal.aborted && pid === null && !ws) attach(shared.pid, true);
	});
}
