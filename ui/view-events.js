/* Everything that happens, as it happens: of all boxes, or of one. */
import { announce, button, h, icon, put, say } from './dom.js';
import { argv, full, time } from './format.js';
import { boxName, on, store } from './store.js';
import { cell, row, table } from './widgets.js';

const SHOWN = 300;
const GROUPS = [
	['', 'Everything'],
	['box.', 'Boxes'],
	['exec.', 'Programs'],
	['file.', 'Files'],
	['checkpoint.', 'Checkpoints'],
	['net.', 'Network'],
	['policy.', 'Policies'],
	['template.', 'Templates'],
	['key.', 'Keys']
];

function what(e) {
	const d = e.data ?? {};
	if (d.argv)
		return [
			h('code', {}, argv(d.argv)),
			d.status !== undefined && d.status !== null ? ` ended with ${d.status}` : ''
		];
	if (d.host || d.address)
		return [h('code', {}, `${d.host ?? d.address}:${d.port ?? ''}`), d.reason ? ` ${d.reason}` : ''];
	return Object.entries(d)
		.filter(([, v]) => v !== null && v !== '')
		.map(([k, v]) =>
			h('span', { class: 'pair' }, h('b', {}, k), ' ', typeof v === 'object' ? JSON.stringify(v) : String(v))
		);
}

export function eventList(panel, signal, box) {
	const group = h(
		'select',
		{ id: 'event-kind' },
		GROUPS.map(([value, label]) => h('option', { value }, label))
	);
	const { el, body } = table(
		'Events, newest first',
		[{ label: 'When', class: 'c-time' }, { label: 'Kind' }, box ? null : { label: 'Box' }, { label: 'What' }].filter(
			Boolean
		)
	);
	el.classList.add('cards', 'events');
	const none = h('p', { class: 'quiet' }),
		held = h('p', { class: 'quiet grow', role: 'status' });
	let paused = false,
		waiting = 0,
		fresh = 0,
		timer = 0;
	const hold = button('Hold still', { icon: 'pause', 'aria-pressed': 'false' }, () => {
		paused = !paused;
		hold.setAttribute('aria-pressed', String(paused));
		put(hold, icon(paused ? 'play' : 'pause'), h('span', {}, paused ? 'Go on' : 'Hold still'));
		if (!paused) draw();
	});
	put(
		panel,
		box ? h('h2', { class: 'unseen' }, 'Events') : h('div', { class: 'head' }, h('h1', {}, 'Events')),
		h(
			'div',
			{ class: 'tools' },
			held,
			h('div', { class: 'row' }, h('label', { for: 'event-kind' }, 'Show'), group, hold)
		),
		h('div', { class: 'wrap' }, el),
		none
	);

	const fits = (e) => (!box || e.box === box) && e.kind.startsWith(group.value);
	const eventRow = (e) =>
		row(
			cell('When', { class: 'c-time', title: full(e.time) }, time(e.time)),
			cell(
				'Kind',
				{},
				h('span', { class: `kind kind-${e.kind.split('.')[0]} kind-${e.kind.replace('.', '-')}` }, e.kind)
			),
			box
				? null
				: cell(
						'Box',
						{ class: 'c-box' },
						e.box
							? store.boxes.has(e.box)
								? h('a', { href: `#/boxes/${e.box}` }, boxName(store.boxes.get(e.box)))
								: h('code', {}, e.box)
							: ''
					),
			cell('What', { class: 'pairs' }, what(e))
		);

	function empty() {
		el.hidden = !body.children.length;
		say(
			none,
			body.children.length
				? ''
				: 'Nothing has happened since this page was opened. Whatever does shows up here at once.'
		);
	}
	function draw() {
		waiting = 0;
		say(held, '');
		put(body, store.events.filter(fits).slice(-SHOWN).reverse().map(eventRow));
		empty();
	}
	group.addEventListener('change', draw);
	on(
		'event',
		(e) => {
			if (!fits(e)) return;
			if (paused) {
				say(held, `${++waiting} more since`);
				return;
			}
			body.prepend(eventRow(e));
			while (body.children.length > SHOWN) body.lastChild.remove();
			empty();
			fresh++;
			if (!timer)
				/* told in moderation: not each, but how many */
				timer = setTimeout(() => {
					timer = 0;
					announce(`${fresh} new ${fresh === 1 ? 'event' : 'events'}`);
					fresh = 0;
				}, 4000);
		},
		signal
	);
	signal.addEventListener('abort', () => clearTimeout(timer));
	draw();
}

export function eventsView(main, signal) {
	eventList(main, signal, null);
}
