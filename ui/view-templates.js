/* What boxes start from. */
import { call, getAll } from './api.js';
import { busy, button, h, put, toast } from './dom.js';
import { bytes, full, time } from './format.js';
import { on } from './store.js';
import { createBox } from './view-boxes.js';
import { cell, confirm, empty, failed, menuButton, row, snippet, table } from './widgets.js';

export function templatesView(main, signal) {
	const { el, body } = table('Templates', [
		{ label: 'Name' },
		{ label: 'What it is' },
		{ label: 'Size', class: 'c-num' },
		{ label: 'Made', class: 'c-time' },
		{ label: 'Actions', hidden: true, class: 'c-act' }
	]);
	el.classList.add('cards');
	const none = h('div');
	put(main, h('div', { class: 'head' }, h('h1', {}, 'Templates')), h('div', { class: 'wrap' }, el), none);

	function remove(t) {
		confirm({
			title: `Remove the template ${t.name}?`,
			text: 'Boxes that were made from it go on. New ones can no longer be made from it.',
			submit: 'Remove',
			run: async () => {
				await call('DELETE', `/v1/templates/${encodeURIComponent(t.name)}`);
				toast(`${t.name} removed`);
				await load();
			}
		});
	}
	function templateRow(t) {
		const use = button('New box', { icon: 'plus', kind: 'small', 'aria-label': `New box from ${t.name}` }, () =>
			busy(use, () => createBox(t.name))
		);
		return row(
			cell('Name', { class: 'c-name' }, h('b', {}, t.name), h('small', { class: 'mono' }, (t.id ?? '').slice(0, 12))),
			cell('What it is', {}, t.detail ?? ''),
			cell('Size', { class: 'c-num' }, t.bytes ? bytes(t.bytes) : '–'),
			cell('Made', { class: 'c-time', title: full(t.created) }, time(t.created)),
			cell(
				'Actions',
				{ class: 'c-act' },
				h(
					'span',
					{ class: 'row' },
					use,
					menuButton(`Actions for ${t.name}`, () => [
						{ label: 'Remove…', icon: 'trash', kind: 'danger', run: () => remove(t) }
					])
				)
			)
		);
	}
	async function load() {
		try {
			const list = await getAll('/v1/templates', 'templates', signal);
			put(body, list.map(templateRow));
			el.hidden = !list.length;
			put(
				none,
				list.length
					? null
					: empty(
							'No templates yet',
							'A template is what boxes start from: this machine’s own system, or an image.',
							snippet('On the server', 'den template pull debian:12\nden template builtin base')
						)
			);
		} catch (err) {
			if (!signal.aborted) put(none, failed(err, load));
		}
	}
	on(
		'event',
		(e) => {
			if (e.kind.startsWith('template.')) load();
		},
		signal
	);
	load();
}
