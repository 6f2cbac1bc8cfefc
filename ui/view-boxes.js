/* All boxes, live. */
import { boxPath, call, getAll, listOf, post } from './api.js';
import { announce, busy, button, complain, h, icon, put, say, svg, toast } from './dom.js';
import { bytes, full, money, percent, rough, span, until } from './format.js';
import { boxName, isUp, on, refresh, sortBoxes, store, want } from './store.js';
import { cell, confirm, dialog, empty, field, menuButton, rovingRows, row, snippet, table } from './widgets.js';

/* ---- pieces that the page of one box has, too ---- */
/* A paused box may be in memory, on disk with its programs, or on disk with its files alone. */
export const stateOf = (b) => (b.on_disk ? (b.hibernated ? 'hibernated' : 'on disk') : b.state);
export function statePill(b) {
	return h(
		'span',
		{ class: 'state', data: { state: b.state } },
		h('span', { class: 'dot' }),
		h('span', {}, stateOf(b))
	);
}
/* "With its programs": a choice in a dialog; tells what came of it. */
export const programsChoice = (label) =>
	h(
		'label',
		{ class: 'check' },
		h('input', { type: 'checkbox', name: 'full' }),
		h('span', {}, label)
	);
export function lostToast(words, saved) {
	const lost = saved?.lost ?? [];
	toast(lost.length ? `${words}, without: ${lost.join('; ')}` : words);
}

export function sparkline() {
	const line = svg('polyline', { fill: 'none', points: '' });
	const el = svg(
		'svg',
		{ class: 'spark', viewBox: '0 0 60 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
		line
	);
	el.draw = (points) => {
		const top = Math.max(10, ...points);
		line.setAttribute(
			'points',
			points.map((p, n) => `${60 - (points.length - 1 - n) * 2.07},${(15 - (p / top) * 14).toFixed(1)}`).join(' ')
		);
	};
	return el;
}

export function meter() {
	const fill = h('span', {});
	const el = h('span', { class: 'meter', 'aria-hidden': 'true' }, fill);
	el.draw = (part) => {
		el.hidden = part === null;
		fill.style.width = `${Math.min(100, (part ?? 0) * 100).toFixed(1)}%`;
		el.classList.toggle('high', part > 0.9);
	};
	return el;
}

export function netOf(id) {
	const u = store.usage.get(id),
		s = store.stats.get(id);
	return { in: s?.netIn ?? u?.net_in ?? null, out: s?.netOut ?? u?.net_out ?? null };
}
/* In money where prices are set, else what it is made of. */
export function costOf(id) {
	const u = store.usage.get(id);
	if (!u) return '–';
	if (u.cost !== undefined && u.cost !== null) return money(u.cost, store.currency);
	return u.cpu_ms === undefined
		? '–'
		: u.cpu_ms < 10000
			? `${(u.cpu_ms / 1000).toFixed(1)} s CPU`
			: `${span(u.cpu_ms)} CPU`;
}

/* Ids of keys say little: those that we may know have names. */
export function ownerOf(b) {
	if (!b.owner) return 'this machine';
	const name = store.keyNames.get(b.owner.key) ?? b.owner.key;
	return b.owner.org === store.who?.org ? name : `${b.owner.org} / ${name}`;
}

export function labelsOf(b) {
	return Object.entries(b.labels ?? {});
}
export function labelChips(b, max = 3) {
	const all = labelsOf(b);
	return [
		...all
			.slice(0, max)
			.map(([k, v]) => h('span', { class: 'chip', title: `${k}=${v}` }, h('b', {}, k), v ? `=${v}` : '')),
		all.length > max
			? h(
					'span',
					{
						class: 'chip',
						title: all
							.slice(max)
							.map(([k, v]) => `${k}=${v}`)
							.join('\n')
					},
					`+${all.length - max}`
				)
			: null
	];
}

/* ---- what can be done with a box ---- */
export async function act(b, what, words, body) {
	const got = await post(boxPath(b.id, `/${what}`), body);
	lostToast(`${boxName(b)} ${words}`, got?.saved);
	await refresh();
}

export function removeBox(b, after) {
	confirm({
		title: `Delete ${boxName(b)}?`,
		text: 'Its processes end and its files and history are removed. This cannot be undone.',
		submit: 'Delete',
		run: async () => {
			await call('DELETE', boxPath(b.id));
			toast(`${boxName(b)} deleted`);
			after?.();
			await refresh();
		}
	});
}

export function stopBox(b) {
	confirm({
		title: `Stop ${boxName(b)}?`,
		text: 'All its processes end. Files and history stay, and it can be started again.',
		submit: 'Stop',
		run: () => act(b, 'stop', 'stopped')
	});
}

export function hibernateBox(b) {
	confirm({
		title: `Hibernate ${boxName(b)}?`,
		text: 'All its processes end; its files stay. Whoever uses it next starts it again.',
		submit: 'Hibernate',
		run: () => act(b, 'hibernate', 'hibernated')
	});
}

/* programs: the checkpoint has them; of the present, whether some can be running. */
export function forkBox(b, ref, programs = b.state === 'running') {
	const name = h('input', {
		name: 'name',
		autocomplete: 'off',
		spellcheck: 'false',
		placeholder: 'none',
		maxlength: 64
	});
	dialog({
		title: ref === undefined ? `Fork ${boxName(b)}` : `Fork from checkpoint ${ref}`,
		text: 'A new box that begins with these files. This one goes on untouched.',
		body: h(
			'div',
			{},
			field('Name of the new box', name, 'a–z 0–9 . _ - · may be left empty'),
			programs ? programsChoice('With its programs as they run') : null
		),
		submit: 'Fork',
		run: async (v) => {
			const made = await post(boxPath(b.id, '/fork'), {
				...(ref === undefined ? {} : { ref: String(ref) }),
				...(v.name ? { name: v.name } : {}),
				...(v.full ? { full: true } : {})
			});
			const box = listOf(made, 'boxes')[0] ?? made?.box ?? made;
			lostToast(`Forked into ${boxName(box)}`, made?.saved);
			await refresh();
			if (box?.id) location.hash = `#/boxes/${box.id}`;
		}
	});
}

export function boxActions(b, after) {
	const run = (what, words, body) => () => act(b, what, words, body).catch(complain);
	return [
		b.state === 'running' ? { label: 'Pause', icon: 'pause', run: run('pause', 'paused') } : null,
		b.state === 'running'
			? { label: 'Pause to disk', icon: 'pause', run: run('pause', 'is on disk', { disk: true }) }
			: null,
		b.state === 'running' ? { label: 'Hibernate…', icon: 'stop', run: () => hibernateBox(b) } : null,
		b.state === 'paused' ? { label: 'Resume', icon: 'play', run: run('resume', 'resumed') } : null,
		b.state === 'stopped' ? { label: 'Start', icon: 'play', run: run('start', 'started') } : null,
		{ label: 'Fork…', icon: 'fork', run: () => forkBox(b) },
		isUp(b) ? { label: 'Stop…', icon: 'stop', run: () => stopBox(b) } : null,
		{ label: 'Delete…', icon: 'trash', kind: 'danger', run: () => removeBox(b, after) }
	].filter(Boolean);
}

/* ---- making one ---- */
const TTL = [
	['', 'Never'],
	['900', '15 minutes'],
	['3600', '1 hour'],
	['28800', '8 hours'],
	['86400', '1 day'],
	['604800', '1 week']
];
const NET = [
	['', 'Nothing'],
	['registries', 'Package registries'],
	['git', 'Git hosts'],
	['llm', 'Model providers'],
	['open', 'Everything public']
];
const option = ([value, label]) => h('option', { value }, label);

function parseLabels(text) {
	const labels = {};
	for (const line of text
		.split('\n')
		.map((l) => l.trim())
		.filter(Boolean)) {
		const at = line.indexOf('=');
		if (at < 1) throw new Error(`A label is KEY=VALUE, one a line; "${line}" is not.`);
		labels[line.slice(0, at)] = line.slice(at + 1);
	}
	return labels;
}

export async function createBox(template) {
	let names = [];
	try {
		names = (await getAll('/v1/templates', 'templates')).map((t) => t.name);
	} catch {
		/* then the server's own choice is all there is */
	}
	const choose = h(
		'select',
		{ name: 'template' },
		option(['', 'Default']),
		names.map((n) => option([n, n]))
	);
	choose.value = template ?? '';
	const body = h(
		'div',
		{ class: 'fields' },
		field('Template', choose),
		field(
			'Name',
			h('input', { name: 'name', autocomplete: 'off', spellcheck: 'false', maxlength: 64, placeholder: 'none' }),
			'a–z 0–9 . _ -'
		),
		field('Ends after', h('select', { name: 'ttl' }, TTL.map(option))),
		field('May reach', h('select', { name: 'net' }, NET.map(option))),
		field(
			'Processors',
			h('input', { name: 'cpu', type: 'number', min: 0.1, max: 256, step: 0.1, placeholder: 'no limit' })
		),
		field('Memory, MiB', h('input', { name: 'memory', type: 'number', min: 16, step: 1, placeholder: 'no limit' })),
		h(
			'div',
			{ class: 'whole' },
			field(
				'Labels',
				h('textarea', { name: 'labels', rows: 2, spellcheck: 'false', placeholder: 'task=4711' }),
				'KEY=VALUE, one a line'
			)
		)
	);
	dialog({
		title: 'New box',
		body,
		submit: 'Create',
		run: async (v) => {
			const spec = {};
			if (v.template) spec.template = v.template;
			if (v.name) spec.name = v.name;
			if (v.ttl) spec.ttl_ms = Number(v.ttl) * 1000;
			if (v.net) spec.policy = { version: 1, presets: [v.net] };
			if (v.cpu || v.memory)
				spec.limits = {
					...(v.cpu ? { cpu_milli: Math.round(v.cpu * 1000) } : {}),
					...(v.memory ? { memory: v.memory * 1048576 } : {})
				};
			if (v.labels.trim()) spec.labels = parseLabels(v.labels);
			const made = await post('/v1/boxes', spec);
			toast(`${boxName(made)} created`);
			await refresh();
			location.hash = `#/boxes/${made.id}`;
		}
	});
}

/* ---- the table ---- */
class Row {
	constructor(b, seen) {
		this.name = h('a', { class: 'name' });
		this.id = h('small', { class: 'mono' });
		this.state = h('span');
		this.owner = h('span', { class: 'owner' });
		this.labels = h('span', { class: 'chips' });
		this.cpu = h('span', { class: 'num' });
		this.spark = sparkline();
		this.memory = h('span', { class: 'num' });
		this.meter = meter();
		this.net = h('span', { class: 'num' });
		this.age = h('span', { class: 'num' });
		this.expires = h('span', { class: 'num' });
		this.cost = h('span', { class: 'num' });
		this.el = row(
			cell('Name', { class: 'c-name' }, this.name, this.id),
			cell('State', { class: 'c-state' }, this.state),
			cell('Owner, labels', { class: 'c-labels' }, this.owner, this.labels),
			cell('CPU', { class: 'c-cpu' }, h('span', { class: 'figure' }, this.spark, this.cpu)),
			cell('Memory', { class: 'c-mem' }, h('span', { class: 'figure' }, this.meter, this.memory)),
			cell('Network', { class: 'c-net' }, this.net),
			cell('Age', { class: 'c-age' }, this.age),
			cell('Expires', { class: 'c-exp' }, this.expires),
			cell('Cost', { class: 'c-cost' }, this.cost),
			cell(
				'Actions',
				{ class: 'c-act' },
				(this.menu = menuButton(`Actions for ${boxName(b)}`, () => boxActions(this.box)))
			)
		);
		this.el.dataset.box = b.id;
		seen.observe(this.el);
		this.update(b);
	}

	update(b) {
		this.box = b;
		this.name.href = `#/boxes/${b.id}`;
		say(this.name, boxName(b));
		say(this.id, [b.template ?? 'host', b.name ? b.id : null].filter(Boolean).join(' · '));
		this.id.title = this.id.textContent;
		if (this.shown !== stateOf(b)) {
			this.shown = stateOf(b);
			put(this.state, statePill(b));
		}
		this.state.title = b.reason ?? '';
		say(this.owner, ownerOf(b));
		const labels = JSON.stringify(b.labels ?? {});
		if (this.labelText !== labels) {
			this.labelText = labels;
			put(this.labels, labelChips(b, 2));
		}
		this.age.title = full(b.created);
		this.expires.title = full(b.expires);
		this.menu.setAttribute('aria-label', `Actions for ${boxName(b)}`);
		this.figures();
	}

	figures() {
		const b = this.box,
			s = b.state === 'running' ? store.stats.get(b.id) : null,
			net = netOf(b.id);
		say(this.cpu, s ? percent(s.cpu) : '–');
		this.spark.draw(s?.points ?? []);
		say(this.memory, s ? bytes(s.memory) : '–');
		const limit = b.limits?.memory || s?.memoryLimit;
		this.meter.draw(s && limit ? s.memory / limit : null);
		say(this.net, net.in === null && net.out === null ? '–' : `↓ ${bytes(net.in ?? 0)} \n↑ ${bytes(net.out ?? 0)}`);
		say(this.age, rough(b.created));
		say(this.expires, b.expires ? until(b.expires) : '–');
		say(this.cost, costOf(b.id));
	}
}

function matches(b, words) {
	const text = [b.id, b.name, b.state, stateOf(b), b.template, ownerOf(b), ...labelsOf(b).map(([k, v]) => `${k}=${v}`)]
		.join(' ')
		.toLowerCase();
	return words.every((w) => text.includes(w));
}

export function firstSteps() {
	const at = location.origin;
	const http = [
		'curl ' + at + '/v1/boxes \\',
		'  -H "Authorization: Bearer $DEN_KEY" \\',
		`  -d '{"name": "first"}'`
	];
	const sdk = [
		`export E2B_API_URL=${at}`,
		`export E2B_SANDBOX_URL=${at}`,
		'export E2B_API_KEY=e2b_…  # a key from here',
		'',
		"import { Sandbox } from 'e2b'",
		'const box = await Sandbox.create()',
		"await box.commands.run('date')"
	];
	return h(
		'div',
		{ class: 'steps' },
		snippet('Over HTTP', http.join('\n')),
		snippet('With E2B’s SDK', sdk.join('\n')),
		snippet('On this machine', 'den create --name first\nden exec first -- date')
	);
}

export function boxesView(main, signal) {
	const rows = new Map();
	const filter = h('input', {
		type: 'search',
		id: 'filter',
		placeholder: 'Filter by name, label, state…',
		autocomplete: 'off',
		spellcheck: 'false'
	});
	const count = h('p', { class: 'count', id: 'count' });
	const { el, body } = table('Boxes', [
		{ label: 'Name, template', class: 'c-name' },
		{ label: 'State', class: 'c-state' },
		{ label: 'Owner, labels', class: 'c-labels' },
		{ label: 'CPU', class: 'c-cpu' },
		{ label: 'Memory', class: 'c-mem' },
		{ label: 'Network', class: 'c-net' },
		{ label: 'Age', class: 'c-age' },
		{ label: 'Expires', class: 'c-exp' },
		{ label: 'Cost', class: 'c-cost' },
		{ label: 'Actions', hidden: true, class: 'c-act' }
	]);
	el.classList.add('boxes', 'cards');
	rovingRows(body, 'a.name');
	const make = button('New box', { icon: 'plus', kind: 'primary' }, () => busy(make, () => createBox()));
	const none = h('div', {}),
		sum = h('p', { class: 'sum' });
	put(
		main,
		h('div', { class: 'head' }, h('div', {}, h('h1', {}, 'Boxes'), sum), make),
		h(
			'div',
			{ class: 'tools' },
			h(
				'div',
				{ class: 'search', role: 'search' },
				icon('search'),
				h('label', { for: 'filter', class: 'unseen' }, 'Filter boxes'),
				filter
			),
			count
		),
		h('div', { class: 'wrap' }, el),
		none
	);

	const seen = new IntersectionObserver((list) => list.forEach((e) => want(e.target.dataset.box, e.isIntersecting)));
	let known = null;

	function draw() {
		const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
		const list = sortBoxes([...store.boxes.values()].filter((b) => matches(b, words)));
		const keep = new Set(list.map((b) => b.id));
		for (const [id, r] of rows)
			if (!keep.has(id)) {
				const had = r.el.contains(document.activeElement);
				seen.unobserve(r.el);
				want(id, false);
				r.el.remove();
				rows.delete(id);
				if (had)
					/* who was in this row does not fall out of the table */
					(body.querySelector('a.name') ?? main).focus();
			}
		list.forEach((b, n) => {
			let r = rows.get(b.id);
			if (r) r.update(b);
			else rows.set(b.id, (r = new Row(b, seen)));
			if (body.children[n] !== r.el) body.insertBefore(r.el, body.children[n] ?? null);
		});
		el.hidden = list.length === 0;
		say(count, words.length ? `${list.length} of ${store.boxes.size}` : '');
		const up = [...store.boxes.values()].filter((b) => b.state === 'running').length;
		let total = 0;
		for (const u of store.usage.values()) total += u.cost ?? 0;
		say(
			sum,
			store.loaded && store.boxes.size
				? `${up} running of ${store.boxes.size}${store.prices ? ` · ${money(total, store.currency)} so far` : ''}`
				: ''
		);
		const what = !store.loaded ? 'loading' : store.boxes.size === 0 ? 'none' : list.length === 0 ? 'nothing' : '';
		if (none.dataset.what !== what) {
			none.dataset.what = what;
			put(
				none,
				what === 'loading'
					? h('p', { class: 'quiet' }, 'Reading…')
					: what === 'none'
						? empty(
								'No boxes yet',
								'A box is a computer of its own for one agent: walled off, limited, recorded, and reversible. Make the first one here, or from a program:',
								firstSteps()
							)
						: what === 'nothing'
							? empty('Nothing fits', 'No box has these words in its name, state, template or labels.')
							: null
			);
		}
		if (known) {
			const fresh = [...store.boxes.keys()].filter((id) => !known.has(id)).length,
				gone = [...known].filter((id) => !store.boxes.has(id)).length;
			if (fresh || gone)
				announce(
					[fresh ? `${fresh} new ${fresh === 1 ? 'box' : 'boxes'}` : '', gone ? `${gone} gone` : '']
						.filter(Boolean)
						.join(', ')
				);
		}
		if (store.loaded) known = new Set(store.boxes.keys());
	}

	filter.addEventListener('input', draw);
	on('boxes', draw, signal);
	on('usage', draw, signal);
	on('stats', (id) => rows.get(id)?.figures(), signal);
	const tick = setInterval(() => rows.forEach((r) => r.figures()), 10000);
	signal.addEventListener('abort', () => {
		clearInterval(tick);
		seen.disconnect();
		store.wanted.clear();
	});
	draw();
}
