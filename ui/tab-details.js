/* What a box is: its settings, and its ports. */
import { boxPath, call, get, listOf } from './api.js';
import { button, complain, h, put } from './dom.js';
import { bytes, full } from './format.js';
import { on, store } from './store.js';
import { labelChips, ownerOf } from './view-boxes.js';
import { cell, confirm, dialog, field, row, table } from './widgets.js';

function fact(label, value) {
	return value === null || value === undefined || value === '' ? null : [h('dt', {}, label), h('dd', {}, value)];
}

/* Ports of the box that are reachable by name from outside: to anybody, or with the box's token. */
function ports(box, signal) {
	const { el, body } = table('Ports', [
		{ label: 'Port', class: 'c-num' },
		{ label: 'Address' },
		{ label: 'Who' },
		{ label: 'Actions', hidden: true, class: 'c-act' }
	]);
	el.classList.add('cards');
	const none = h('p', { class: 'quiet' });
	const path = (rest = '') => boxPath(box.id, `/ports${rest}`);

	function share() {
		const port = h('input', {
			name: 'port',
			type: 'number',
			min: 1,
			max: 65535,
			required: true,
			placeholder: '8000'
		});
		const who = h(
			'select',
			{ name: 'who' },
			h('option', { value: 'token' }, 'who has the token'),
			h('option', { value: 'public' }, 'anybody')
		);
		dialog({
			title: 'Share a port',
			text: 'What listens on it in the box gets an address of its own.',
			body: h('div', { class: 'fields' }, field('Port', port), field('For', who)),
			submit: 'Share',
			run: async (v) => {
				await call('PUT', path(`/${v.port}`), { json: { public: v.who === 'public' } });
				await load();
			}
		});
	}

	function close(p) {
		confirm({
			title: `Stop sharing port ${p.port}?`,
			text: 'It is then reachable with the token of the box alone.',
			submit: 'Stop sharing',
			run: async () => {
				await call('DELETE', path(`/${p.port}`));
				await load();
			}
		});
	}

	function portRow(p) {
		/* the token goes along once; the box's own origin keeps it as a cookie */
		const href = p.token ? `${p.url}?den-token=${encodeURIComponent(p.token)}` : p.url;
		const link = /^https?:/.test(p.url ?? '')
			? h('a', { href, target: '_blank', rel: 'noreferrer noopener', class: 'mono' }, p.url)
			: '';
		return row(
			cell('Port', { class: 'c-num' }, String(p.port)),
			cell('Address', {}, link),
			cell('Who', {}, p.public ? 'anybody' : 'who has the token'),
			cell(
				'Actions',
				{ class: 'c-act' },
				button('Stop sharing', { kind: 'small', 'aria-label': `Stop sharing port ${p.port}` }, () => close(p))
			)
		);
	}

	async function load() {
		try {
			const list = listOf(await get(path(), undefined, signal), 'ports');
			put(body, list.map(portRow));
			el.hidden = !list.length;
			none.textContent = list.length ? '' : 'None is shared.';
		} catch (err) {
			if (!signal.aborted) complain(err);
		}
	}
	load();
	return h(
		'section',
		{ class: 'ports', 'aria-label': 'Ports' },
		h('div', { class: 'row between' }, h('h3', {}, 'Ports'), button('Share a port', { icon: 'plus' }, share)),
		h('div', { class: 'wrap' }, el),
		none
	);
}

export function detailsTab(panel, box, signal) {
	const list = h('dl', { class: 'facts' });
	function draw() {
		const b = store.boxes.get(box.id) ?? box,
			l = b.limits ?? {};
		put(
			list,
			fact('Id', h('code', {}, b.id)),
			fact('Name', b.name),
			fact('State', b.reason ? `${b.state}: ${b.reason}` : b.state),
			fact('Template', b.template),
			fact('Wall', b.wall),
			fact('User', b.user),
			fact('Working directory', b.workdir),
			fact('Owner', ownerOf(b)),
			fact(
				'Labels',
				labelChips(b, 99).filter(Boolean).length ? h('span', { class: 'chips' }, labelChips(b, 99)) : 'none'
			),
			fact('Created', full(b.created)),
			fact('Started', full(b.started)),
			fact('Stopped', full(b.stopped)),
			fact('Expires', b.expires ? `${full(b.expires)}, then ${b.on_expire ?? 'delete'}` : 'never'),
			fact('When idle', b.idle_ms ? `after ${Math.round(b.idle_ms / 1000)} s: ${b.on_idle ?? 'pause'}` : 'goes on'),
			fact('Processors', l.cpu_milli ? String(l.cpu_milli / 1000) : 'no limit'),
			fact('Memory', l.memory ? bytes(l.memory) : 'no limit'),
			fact('Disk', l.disk ? bytes(l.disk) : 'no limit'),
			fact('Processes', l.pids ? String(l.pids) : 'no limit'),
			fact('History', b.history),
			fact(
				'Policy',
				b.policy_name ? `${b.policy_name}, generation ${b.generation}` : `its own, generation ${b.generation ?? 0}`
			)
		);
	}
	put(panel, h('h2', { class: 'unseen' }, 'Details'), list, ports(box, signal));
	on('boxes', draw, signal);
	draw();
}
