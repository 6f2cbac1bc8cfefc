/* The journal of a box: what was written down, chained by hashes. */
import { boxPath, get, listOf } from './api.js';
import { h, put } from './dom.js';
import { full, ms, time } from './format.js';
import { on } from './store.js';
import { cell, failed, row, table } from './widgets.js';

const KINDS = ['connection', 'denial', 'incident', 'secret', 'policy', 'gate'];
const ASIDE = new Set(['at', 'time', 'kind', 'hash', 'n']);

/* What a record says, without what every record has. */
function words(e) {
	return Object.entries(e)
		.filter(([k, v]) => !ASIDE.has(k) && v !== null && v !== '')
		.map(([k, v]) =>
			h('span', { class: 'pair' }, h('b', {}, k), ' ', typeof v === 'object' ? JSON.stringify(v) : String(v))
		);
}

export function journalTab(panel, box, signal) {
	const kind = h(
		'select',
		{ id: 'journal-kind' },
		h('option', { value: '' }, 'Everything'),
		KINDS.map((k) => h('option', { value: k }, k))
	);
	const { el, body } = table('Journal', [
		{ label: 'When', class: 'c-time' },
		{ label: 'Kind' },
		{ label: 'What' },
		{ label: 'Line', class: 'c-num' }
	]);
	el.classList.add('cards');
	const none = h('div');
	put(
		panel,
		h('h2', { class: 'unseen' }, 'Journal'),
		h(
			'div',
			{ class: 'tools' },
			h(
				'p',
				{ class: 'quiet grow' },
				'Lines are numbered and chained by hashes: one that is taken out or changed later would show.'
			),
			h('div', { class: 'row' }, h('label', { for: 'journal-kind' }, 'Kind'), kind)
		),
		h('div', { class: 'wrap' }, el),
		none
	);

	async function load() {
		try {
			const list = listOf(
				await get(boxPath(box.id, '/journal'), { kind: kind.value, count: 300 }, signal),
				'entries',
				'journal',
				'records'
			).reverse();
			put(
				body,
				list.map((e) =>
					row(
						cell('When', { class: 'c-time', title: full(ms(e.at ?? e.time)) }, time(ms(e.at ?? e.time))),
						cell('Kind', {}, h('span', { class: `kind kind-${e.kind}` }, e.kind ?? '')),
						cell('What', { class: 'pairs' }, words(e)),
						cell('Line', { class: 'c-num quiet' }, String(e.n ?? ''))
					)
				)
			);
			el.hidden = !list.length;
			put(
				none,
				list.length
					? null
					: h(
							'p',
							{ class: 'quiet' },
							'Nothing is written down yet. Connections, refusals, uses of secrets and changes of policy are.'
						)
			);
		} catch (err) {
			if (!signal.aborted) put(none, failed(err, load));
		}
	}
	kind.addEventListener('change', load);
	let soon = 0;
	on(
		'event',
		(e) => {
			if (e.box === box.id && (e.kind.startsWith('net.') || e.kind === 'policy.changed')) {
				clearTimeout(soon);
				soon = setTimeout(load, 300);
			}
		},
		signal
	);
	signal.addEventListener('abort', () => clearTimeout(soon));
	load();
}
