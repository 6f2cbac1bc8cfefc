/* What the box reached, what it was refused, and a button that allows it. */
import { boxPath, call, get, listOf, post } from './api.js';
import { announce, busy, button, h, icon, put, toast } from './dom.js';
import { bytes, full, ms, time } from './format.js';
import { on } from './store.js';
import { cell, dialog, failed, field, row, table } from './widgets.js';

const SHOWN = 200;
const when = (e) => ms(e.at ?? e.time ?? e.created);
const hostOf = (e) => e.host ?? e.address ?? '?';
/* a name that was refused when it was looked up has no port yet */
const keyOf = (e) => (e.port ? `${hostOf(e)}:${e.port}` : hostOf(e));

/* "NAME[:PORTS]" as the policy's rules are written; what allows a denial of host and port. */
const ruleHas = (rule, host, port) =>
	rule === host || rule === `${host}:*` || (port ? rule === `${host}:${port}` : rule.startsWith(`${host}:`));

export function networkTab(panel, box, signal) {
	const denials = table('Refused', [
		{ label: 'When', class: 'c-time' },
		{ label: 'To' },
		{ label: 'Why' },
		{ label: 'Times', class: 'c-num' },
		{ label: 'Allow', hidden: true, class: 'c-act' }
	]);
	const conns = table('Connections', [
		{ label: 'When', class: 'c-time' },
		{ label: 'To' },
		{ label: 'Rule' },
		{ label: 'Sent', class: 'c-num' },
		{ label: 'Received', class: 'c-num' },
		{ label: 'Took', class: 'c-num' }
	]);
	denials.el.classList.add('cards');
	conns.el.classList.add('cards');
	const policyEl = h('div', { class: 'policy' }),
		denied = new Map(),
		noDenials = h('p', { class: 'quiet' }),
		noConns = h('p', { class: 'quiet' }),
		trouble = h('div');
	let list = [],
		policy = null;
	put(
		panel,
		h('h2', { class: 'unseen' }, 'Network'),
		trouble,
		h(
			'div',
			{ class: 'net' },
			h(
				'div',
				{ class: 'net-main' },
				h('h3', {}, 'Refused'),
				h('div', { class: 'wrap' }, denials.el),
				noDenials,
				h('h3', {}, 'Connections'),
				h('div', { class: 'wrap' }, conns.el),
				noConns
			),
			h('aside', { 'aria-label': 'Policy' }, policyEl)
		)
	);

	const isAllowed = (e) => (policy?.policy?.allow ?? []).some((r) => ruleHas(r, hostOf(e), e.port));

	async function allow(e) {
		await post(boxPath(box.id, '/policy/allow'), { host: hostOf(e), ...(e.port ? { port: e.port } : {}) });
		toast(`${keyOf(e)} is allowed`);
		await loadPolicy();
	}

	function drawDenials() {
		const all = [...denied.values()].sort((a, b) => when(b.last) - when(a.last));
		const had = denials.body.contains(document.activeElement)
			? document.activeElement.closest('tr')?.dataset.key
			: null;
		put(
			denials.body,
			all.slice(0, SHOWN).map((d) => {
				const e = d.last,
					done = isAllowed(e);
				const b = done
					? h('span', { class: 'done' }, icon('check'), 'Allowed')
					: e.address || e.host
						? button('Allow', { icon: 'shield', kind: 'small', 'aria-label': `Allow ${keyOf(e)}` }, () =>
								busy(b, () => allow(e))
							)
						: null;
				const r = row(
					cell('When', { class: 'c-time', title: full(when(e)) }, time(when(e))),
					cell('To', { class: 'mono' }, keyOf(e)),
					cell('Why', {}, e.reason ?? '', e.rule ? h('small', {}, ` ${e.rule}`) : null),
					cell('Times', { class: 'c-num' }, String(d.count)),
					cell('Allow', { class: 'c-act' }, b)
				);
				r.dataset.key = keyOf(e);
				return r;
			})
		);
		denials.el.hidden = !all.length;
		noDenials.textContent = all.length
			? ''
			: 'Nothing was refused. What the policy does not allow shows up here at once, with a button to allow it.';
		if (had)
			[...denials.body.children]
				.find((r) => r.dataset.key === had)
				?.querySelector('button')
				?.focus();
	}

	function drawConns() {
		put(
			conns.body,
			list
				.slice(0, SHOWN)
				.map((e) =>
					row(
						cell('When', { class: 'c-time', title: full(when(e)) }, time(when(e))),
						cell('To', { class: 'mono' }, keyOf(e)),
						cell('Rule', {}, e.rule ?? ''),
						cell('Sent', { class: 'c-num' }, bytes(e.bytes_out ?? 0)),
						cell('Received', { class: 'c-num' }, bytes(e.bytes_in ?? 0)),
						cell('Took', { class: 'c-num' }, e.ms === undefined ? '' : `${e.ms} ms`)
					)
				)
		);
		conns.el.hidden = !list.length;
		noConns.textContent = list.length ? '' : 'No connection has ended yet.';
	}

	function ruleList(title, rules, none) {
		return [
			h('h4', {}, title),
			rules?.length
				? h(
						'ul',
						{ class: 'rules' },
						rules.map((r) => h('li', { class: 'mono' }, typeof r === 'string' ? r : JSON.stringify(r)))
					)
				: h('p', { class: 'quiet' }, none)
		];
	}

	function edit() {
		const text = h('textarea', { name: 'policy', rows: 16, spellcheck: 'false', class: 'mono' });
		text.value = JSON.stringify(policy.policy ?? { version: 1, allow: [] }, null, 2);
		dialog({
			title: 'Policy of this box',
			wide: true,
			text: policy.name
				? `It follows the stored policy “${policy.name}”. Saved here, it has its own from then on.`
				: null,
			body: field(
				'JSON',
				text,
				'“den policy schema” prints what can be said. Connections that the new one forbids end at once.'
			),
			submit: 'Save',
			run: async (v) => {
				let p;
				try {
					p = JSON.parse(v.policy);
				} catch (err) {
					throw new Error(`This is not JSON: ${err.message}`);
				}
				await call('PUT', boxPath(box.id, '/policy'), { json: { policy: p } });
				toast('In force');
				await loadPolicy();
			}
		});
	}

	function drawPolicy() {
		const p = policy.policy ?? {};
		put(
			policyEl,
			h('div', { class: 'row between' }, h('h3', {}, 'Policy'), button('Edit', { icon: 'edit' }, edit)),
			h(
				'p',
				{ class: 'quiet' },
				policy.name ? `Follows “${policy.name}”` : 'Its own',
				` · generation ${policy.generation ?? 0}`
			),
			p.presets?.length ? ruleList('Presets', p.presets) : null,
			ruleList('Allowed', p.allow, p.presets?.length ? 'Nothing more.' : 'Nothing: this box reaches no network.'),
			p.deny?.length ? ruleList('Denied', p.deny) : null,
			p.secrets?.length
				? ruleList(
						'Secrets',
						p.secrets.map((s) => `${s.name} → ${s.host}`)
					)
				: null
		);
	}

	async function loadPolicy() {
		policy = await get(boxPath(box.id, '/policy'), undefined, signal);
		if (typeof policy.policy === 'string') policy.policy = JSON.parse(policy.policy);
		drawPolicy();
		drawDenials();
	}

	function addDenial(e) {
		const old = denied.get(keyOf(e));
		if (!old || when(old.last) <= when(e))
			denied.set(keyOf(e), { last: e, count: (old?.count ?? 0) + (e.count ?? 1) });
		else old.count += e.count ?? 1;
	}

	async function load() {
		try {
			const [d, c] = await Promise.all([
				get(boxPath(box.id, '/journal'), { kind: 'denial', count: SHOWN }, signal),
				get(boxPath(box.id, '/journal'), { kind: 'connection', count: SHOWN }, signal),
				loadPolicy()
			]);
			denied.clear();
			listOf(d, 'entries', 'journal', 'records').forEach(addDenial);
			list = listOf(c, 'entries', 'journal', 'records').sort((a, b) => when(b) - when(a));
			put(trouble);
			drawDenials();
			drawConns();
		} catch (err) {
			if (!signal.aborted) put(trouble, failed(err, load));
		}
	}

	let soon = 0;
	on(
		'event',
		(e) => {
			if (e.box !== box.id) return;
			if (e.kind === 'net.denied') announce(`Refused: ${keyOf({ time: e.time, ...e.data })}`);
			if (['net.denied', 'net.connection', 'policy.changed'].includes(e.kind)) {
				/* the journal is the truth; the event only says when to look */
				clearTimeout(soon);
				soon = setTimeout(load, 200);
			}
		},
		signal
	);
	signal.addEventListener('abort', () => clearTimeout(soon));
	load();
}
