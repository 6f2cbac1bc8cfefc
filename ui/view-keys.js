/* Keys: who may ask. For admins. */
import { call, getAll, post } from './api.js';
import { button, h, put, toast } from './dom.js';
import { bytes, full, time } from './format.js';
import { on, store } from './store.js';
import { cell, confirm, dialog, empty, failed, field, row, snippet, table } from './widgets.js';

const SCOPES = ['boxes', 'read', 'secrets', 'templates', 'admin'];

function quotaWords(q) {
	if (!q) return 'none';
	return (
		[
			q.boxes ? `${q.boxes} boxes` : '',
			q.cpu_milli ? `${q.cpu_milli / 1000} CPU` : '',
			q.memory ? bytes(q.memory) : '',
			q.disk ? `${bytes(q.disk)} disk` : '',
			q.rate ? `${q.rate}/min` : ''
		]
			.filter(Boolean)
			.join(', ') || 'none'
	);
}

export function keysView(main, signal) {
	const { el, body } = table('Keys', [
		{ label: 'Name' },
		{ label: 'Organisation' },
		{ label: 'Scopes' },
		{ label: 'Quota' },
		{ label: 'Made', class: 'c-time' },
		{ label: 'Actions', hidden: true, class: 'c-act' }
	]);
	el.classList.add('cards');
	const none = h('div');
	const make = button('New key', { icon: 'plus', kind: 'primary' }, create);
	put(main, h('div', { class: 'head' }, h('h1', {}, 'Keys'), make), h('div', { class: 'wrap' }, el), none);

	function create() {
		const scopes = h(
			'fieldset',
			{ class: 'field whole' },
			h('legend', {}, 'Scopes'),
			h(
				'div',
				{ class: 'row wrapping' },
				SCOPES.map((s) =>
					h(
						'label',
						{ class: 'check' },
						h('input', { type: 'checkbox', name: `scope-${s}`, checked: s !== 'admin' }),
						s
					)
				)
			)
		);
		dialog({
			title: 'New key',
			submit: 'Create',
			body: h(
				'div',
				{ class: 'fields' },
				field(
					'Name',
					h('input', { name: 'name', required: true, maxlength: 64, autocomplete: 'off' }),
					'For people: who or what uses it'
				),
				field(
					'Organisation',
					h('input', {
						name: 'org',
						value: store.who.org ?? 'default',
						maxlength: 32,
						autocomplete: 'off',
						spellcheck: 'false'
					}),
					'It sees the boxes of this one'
				),
				scopes,
				field('Boxes at most', h('input', { name: 'boxes', type: 'number', min: 1, placeholder: 'no limit' })),
				field('Requests a minute', h('input', { name: 'rate', type: 'number', min: 1, placeholder: 'no limit' }))
			),
			run: async (v) => {
				const spec = { name: v.name, scopes: SCOPES.filter((s) => v[`scope-${s}`]) };
				if (v.org) spec.org = v.org;
				if (v.boxes || v.rate)
					spec.quota = {
						...(v.boxes ? { boxes: Number(v.boxes) } : {}),
						...(v.rate ? { rate: Number(v.rate) } : {})
					};
				const made = await post('/v1/keys', spec);
				await load();
				setTimeout(() =>
					dialog({
						title: 'The new key',
						text: 'This is the only time that it is shown.',
						body: snippet('Key', made.key ?? made.secret ?? made.token ?? ''),
						submit: 'Done',
						cancel: null
					})
				);
			}
		});
	}
	function revoke(k) {
		confirm({
			title: `Revoke ${k.name || k.id}?`,
			text: 'Whoever uses it is refused from now on. Its boxes stay.',
			submit: 'Revoke',
			run: async () => {
				await call('DELETE', `/v1/keys/${encodeURIComponent(k.id)}`);
				toast('Revoked');
				await load();
			}
		});
	}
	const keyRow = (k) =>
		row(
			cell(
				'Name',
				{ class: 'c-name' },
				h('b', {}, k.name || k.id),
				h('small', { class: 'mono' }, k.id, k.id === store.who.key ? ' · this session' : '')
			),
			cell('Organisation', {}, k.org ?? ''),
			cell(
				'Scopes',
				{},
				h(
					'span',
					{ class: 'chips' },
					(k.scopes ?? (k.admin ? ['admin'] : [])).map((s) => h('span', { class: 'chip' }, s))
				)
			),
			cell('Quota', {}, quotaWords(k.quota)),
			cell('Made', { class: 'c-time', title: full(k.created) }, time(k.created)),
			cell(
				'Actions',
				{ class: 'c-act' },
				k.revoked
					? h('span', { class: 'quiet' }, 'revoked')
					: button('Revoke', { icon: 'trash', kind: 'small', 'aria-label': `Revoke ${k.name || k.id}` }, () =>
							revoke(k)
						)
			)
		);

	async function load() {
		try {
			const list = await getAll('/v1/keys', 'keys', signal);
			put(body, list.map(keyRow));
			el.hidden = !list.length;
			put(none, list.length ? null : empty('No keys', 'Make one for each program or person.'));
		} catch (err) {
			if (!signal.aborted) put(none, failed(err, load));
		}
	}
	on(
		'event',
		(e) => {
			if (e.kind.startsWith('key.')) load();
		},
		signal
	);
	load();
}
