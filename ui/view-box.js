/* One box: what it is doing now, and tabs for the rest. */
import { boxPath, get, post } from './api.js';
import { announce, busy, button, h, icon, put, say, toast } from './dom.js';
import { ago, bytes, percent, until } from './format.js';
import { boxName, isUp, on, refreshBox, store, want } from './store.js';
import {
	boxActions,
	costOf,
	forkBox,
	labelChips,
	meter,
	netOf,
	sparkline,
	stateOf,
	statePill,
	stopBox
} from './view-boxes.js';
import { dialog, empty, failed, field, menuButton, tabs } from './widgets.js';
import { terminalTab } from './tab-terminal.js';
import { filesTab } from './tab-files.js';
import { historyTab } from './tab-history.js';
import { networkTab } from './tab-network.js';
import { detailsTab } from './tab-details.js';
import { journalTab } from './tab-journal.js';
import { eventList } from './view-events.js';

const TABS = [
	{ id: 'terminal', label: 'Terminal', run: terminalTab },
	{ id: 'files', label: 'Files', run: filesTab },
	{ id: 'history', label: 'History', run: historyTab },
	{ id: 'network', label: 'Network', run: networkTab },
	{ id: 'journal', label: 'Journal', run: journalTab },
	{ id: 'events', label: 'Events', run: (panel, box, signal) => eventList(panel, signal, box.id) },
	{ id: 'details', label: 'Details', run: detailsTab }
];

function leaseDialog(b) {
	const select = h(
		'select',
		{ name: 'ttl' },
		[
			['900', '15 minutes'],
			['3600', '1 hour'],
			['28800', '8 hours'],
			['86400', '1 day'],
			['604800', '1 week'],
			['0', 'Never']
		].map(([value, label]) => h('option', { value }, label))
	);
	const then = h(
		'select',
		{ name: 'then' },
		['delete', 'pause', 'stop'].map((value) => h('option', { value }, value))
	);
	then.value = b.on_expire ?? 'delete';
	dialog({
		title: `When ${boxName(b)} ends`,
		body: h('div', { class: 'fields' }, field('From now', select), field('Then', then)),
		submit: 'Set',
		run: async (v) => {
			await post(boxPath(b.id, '/lease'), {
				...(v.ttl === '0' ? { expires: null } : { ttl_ms: Number(v.ttl) * 1000 }),
				on_expire: v.then
			});
			await refreshBox(b.id);
			toast('Set');
		}
	});
}

class Top {
	constructor(b) {
		this.title = h('h1', {});
		this.state = h('span', {});
		this.id = h('code', { class: 'mono' });
		this.labels = h('span', { class: 'chips' });
		this.acts = h('div', { class: 'acts' });
		this.cpu = h('strong', {});
		this.spark = sparkline();
		this.memory = h('strong', {});
		this.meter = meter();
		this.net = h('strong', {});
		this.age = h('strong', {});
		this.expires = button('', { kind: 'text' }, () => leaseDialog(this.box));
		this.cost = h('strong', {});
		const figure = (label, ...c) => h('div', {}, h('dt', {}, label), h('dd', {}, ...c));
		this.figuresEl = h(
			'dl',
			{ class: 'figures' },
			figure('CPU', this.cpu, this.spark),
			figure('Memory', this.memory, this.meter),
			figure('Network', this.net),
			figure('Age', this.age),
			figure('Expires', this.expires),
			figure('Cost', this.cost)
		);
		this.el = h(
			'div',
			{ class: 'top' },
			h(
				'nav',
				{ 'aria-label': 'You are here', class: 'crumbs' },
				h('a', { href: '#/' }, 'Boxes'),
				icon('chevron'),
				this.id
			),
			h('div', { class: 'head' }, h('div', { class: 'titles' }, this.title, this.state, this.labels), this.acts),
			this.figuresEl
		);
		this.update(b);
	}

	update(b) {
		this.box = b;
		say(this.title, boxName(b));
		say(this.id, b.id);
		document.title = `${boxName(b)} · den`;
		const labels = JSON.stringify(b.labels ?? {});
		if (this.labelText !== labels) {
			this.labelText = labels;
			put(this.labels, labelChips(b, 4));
		}
		if (this.shown !== stateOf(b)) {
			if (this.shown) announce(`${boxName(b)} is ${stateOf(b)}`);
			this.shown = stateOf(b);
			put(this.state, statePill(b));
			const had = this.acts.contains(document.activeElement);
			const quick = (label, name, what, words) => {
				const el = button(label, { icon: name }, () =>
					busy(el, async () => {
						await post(boxPath(b.id, `/${what}`));
						toast(`${boxName(b)} ${words}`);
						await refreshBox(b.id);
					})
				);
				return el;
			};
			put(
				this.acts,
				b.state === 'running' ? quick('Pause', 'pause', 'pause', 'paused') : null,
				b.state === 'paused' ? quick('Resume', 'play', 'resume', 'resumed') : null,
				b.state === 'stopped' ? quick('Start', 'play', 'start', 'started') : null,
				button('Fork', { icon: 'fork' }, () => forkBox(this.box)),
				isUp(b) ? button('Stop', { icon: 'stop' }, () => stopBox(this.box)) : null,
				menuButton(
					'More actions',
					() =>
						boxActions(this.box, () => {
							location.hash = '#/';
						}),
					{ kind: '' }
				)
			);
			if (had) this.acts.querySelector('button')?.focus();
		}
		this.figures();
	}

	figures() {
		const b = this.box,
			s = b.state === 'running' ? store.stats.get(b.id) : null,
			net = netOf(b.id);
		say(this.cpu, s ? percent(s.cpu) : '–');
		this.spark.draw(s?.points ?? []);
		const limit = b.limits?.memory || s?.memoryLimit;
		say(this.memory, s ? `${bytes(s.memory)}${limit ? ` of ${bytes(limit)}` : ''}` : '–');
		this.meter.draw(s && limit ? s.memory / limit : null);
		say(this.net, net.in === null && net.out === null ? '–' : `↓ ${bytes(net.in ?? 0)}  ↑ ${bytes(net.out ?? 0)}`);
		say(this.age, ago(b.created));
		const when = b.expires ? until(b.expires) : 'never';
		say(this.expires.firstChild, when);
		this.expires.setAttribute('aria-label', `Expires ${when}. Change`);
		say(this.cost, costOf(b.id));
	}
}

export function boxView(main, signal, id, tab) {
	const panel = h('section', { id: 'panel', role: 'tabpanel', tabindex: -1 });
	let top = null,
		bar = null,
		inner = null,
		current = null;

	function choose(want1) {
		const t = TABS.find((x) => x.id === want1) ?? TABS[0];
		if (t.id === current) return;
		current = t.id;
		inner?.abort();
		inner = new AbortController();
		bar.select(t.id);
		panel.setAttribute('aria-labelledby', `tab-${t.id}`);
		panel.className = `panel panel-${t.id}`;
		put(panel);
		t.run(panel, top.box, inner.signal);
	}

	function begin(b) {
		top = new Top(b);
		bar = tabs(
			'Parts of this box',
			TABS.map((t) => ({ ...t, href: `#/boxes/${b.id}/${t.id}` })),
			tab ?? 'terminal',
			(t) => {
				history.replaceState(null, '', `#/boxes/${b.id}/${t}`);
				choose(t);
			}
		);
		put(main, top.el, bar, panel);
		choose(tab ?? 'terminal');
		want(b.id, true);
	}

	function gone() {
		inner?.abort();
		put(
			main,
			h(
				'nav',
				{ 'aria-label': 'You are here', class: 'crumbs' },
				h('a', { href: '#/' }, 'Boxes'),
				icon('chevron'),
				h('code', {}, id)
			),
			h('h1', { class: 'unseen' }, id),
			empty(
				'This box is gone',
				'It was deleted, or it is not one of yours.',
				h('a', { class: 'button', href: '#/' }, 'All boxes')
			)
		);
	}

	async function load() {
		try {
			const b = await get(boxPath(id), undefined, signal);
			store.boxes.set(b.id, b);
			begin(b);
		} catch (err) {
			if (signal.aborted) return;
			if (err.status === 404) gone();
			else put(main, h('h1', { class: 'unseen' }, id), failed(err, load));
		}
	}

	on(
		'boxes',
		() => {
			if (!top) return;
			const b = store.boxes.get(top.box.id);
			if (b) top.update(b);
			else if (store.loaded) gone();
		},
		signal
	);
	on(
		'stats',
		(n) => {
			if (n === top?.box.id) top.figures();
		},
		signal
	);
	on('usage', () => top?.figures(), signal);
	const tick = setInterval(() => top?.figures(), 10000);
	signal.addEventListener('abort', () => {
		clearInterval(tick);
		inner?.abort();
		store.wanted.clear();
	});
	const b = store.boxes.get(id);
	if (b) begin(b);
	else load();
	/* another tab of the same box: only the panel changes */
	return (id2, tab2) => {
		if (!top || (id2 !== id && id2 !== top.box.id)) return false;
		choose(tab2 ?? 'terminal');
		return true;
	};
}
