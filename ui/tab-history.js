/* History: the checkpoints of a box as the tree that they are, newest at the top, and what differs between two. */
import { boxPath, call, get, getAll, listOf, post, raw } from './api.js';
import { announce, busy, button, h, icon, put, svg, toast } from './dom.js';
import { ago, bytes, full } from './format.js';
import { on, refreshBox, store } from './store.js';
import { forkBox, lostToast, programsChoice } from './view-boxes.js';
import { confirm, dialog, failed, field } from './widgets.js';

const ROW = 46,
	LANE = 18,
	DIFF_MAX = 512 << 10,
	FILES_SHOWN = 300;

/*
 * Lanes: going from new to old, a checkpoint takes the lane that waits for it, else a free one; its lane
 * then waits for its parent. Several lanes that wait for the same one meet there: that is a branch.
 */
export function layout(list) {
	const known = new Set(list.map((c) => c.number));
	const lanes = [];
	return [...list]
		.sort((a, b) => b.number - a.number)
		.map((c) => {
			const before = [...lanes];
			let lane = lanes.indexOf(c.number);
			if (lane < 0) lane = lanes.includes(null) ? lanes.indexOf(null) : lanes.length;
			const meet = [];
			lanes.forEach((n, i) => {
				if (n === c.number) {
					if (i !== lane) meet.push(i);
					lanes[i] = null;
				}
			});
			const parent =
				c.parent !== null && c.parent !== undefined && c.parent >= 0 && known.has(c.parent) ? c.parent : null;
			lanes[lane] = parent;
			while (lanes.length && lanes[lanes.length - 1] === null) lanes.pop();
			return {
				c,
				lane,
				meet,
				above: before.map((n, i) => (n !== null && n !== undefined ? i : -1)).filter((i) => i >= 0),
				below: lanes.map((n, i) => (n !== null && n !== undefined ? i : -1)).filter((i) => i >= 0)
			};
		});
}

const x = (lane) => 12 + lane * LANE;

function graph(r, width, first) {
	const mid = ROW / 2,
		g = svg('svg', { class: 'graph', width, height: ROW, viewBox: `0 0 ${width} ${ROW}`, 'aria-hidden': 'true' });
	for (const i of r.above) {
		if (i === r.lane) g.append(svg('path', { d: `M${x(i)} 0V${mid}`, class: `lane-${i % 6}` }));
		else if (r.meet.includes(i))
			g.append(
				svg('path', {
					d: `M${x(i)} 0C${x(i)} ${mid} ${x(r.lane)} ${mid / 2} ${x(r.lane)} ${mid}`,
					class: `lane-${i % 6}`
				})
			);
		else g.append(svg('path', { d: `M${x(i)} 0V${mid}`, class: `lane-${i % 6}` }));
	}
	for (const i of r.below) g.append(svg('path', { d: `M${x(i)} ${mid}V${ROW}`, class: `lane-${i % 6}` }));
	if (first && r.c.head) g.append(svg('path', { d: `M${x(r.lane)} 0V${mid}`, class: `lane-${r.lane % 6} dashed` }));
	g.append(
		svg('circle', {
			cx: x(r.lane),
			cy: mid,
			r: r.c.head ? 6 : 4.5,
			class: `node lane-${r.lane % 6}${r.c.head ? ' head' : ''}`
		})
	);
	return g;
}

/* What the turn was, without the shell around it. */
const wordsOf = (c) => (c.message ?? '').replace(/^\/bin\/sh -c /, '');
const tagsOf = (c) => (Array.isArray(c.tags) ? c.tags : String(c.tags ?? '').split(' ')).filter(Boolean);

/* ---- the difference ---- */
const SIGNS = { added: '+', removed: '−', modified: '~', meta: '·' };

function diffLines(text) {
	const out = h('pre', { class: 'diff', tabindex: 0, role: 'region', 'aria-label': 'Difference, line by line' });
	for (const line of text.split('\n')) {
		const kind =
			line.startsWith('+++') || line.startsWith('---') || line.startsWith('diff ')
				? 'file'
				: line[0] === '+'
					? 'add'
					: line[0] === '-'
						? 'del'
						: line.startsWith('@@')
							? 'at'
							: '';
		out.append(h('span', { class: kind || null }, `${line}\n`));
	}
	return out;
}

async function textDiff(box, from, to, signal) {
	const res = await raw('GET', boxPath(box.id, '/diff'), { query: { from, to, format: 'text' }, signal });
	const reader = res.body.getReader(),
		decoder = new TextDecoder();
	let text = '',
		cut = false;
	for (;;) {
		const { done, value } = await reader.read();
		if (done) break;
		text += decoder.decode(value, { stream: true });
		if (text.length > DIFF_MAX) {
			cut = true;
			reader.cancel();
			break;
		}
	}
	return { text, cut };
}

export function historyTab(panel, box, signal) {
	const tree = h('div', { class: 'tree', role: 'listbox', 'aria-label': 'Checkpoints, newest first' });
	const side = h('section', { class: 'point', 'aria-label': 'Checkpoint' });
	let list = [],
		picked = null,
		against = null,
		showing = 0;
	const say1 = (text) =>
		dialog({
			title: text,
			body: h(
				'div',
				{},
				field(
					'Message',
					h('input', { name: 'message', autocomplete: 'off', maxlength: 500 }),
					'What this point is; may be left empty'
				),
				store.boxes.get(box.id)?.state === 'running' ? programsChoice('With the programs that run') : null
			),
			submit: 'Make',
			run: async (v) => {
				const made = await post(boxPath(box.id, '/checkpoints'), {
					...(v.message ? { message: v.message } : {}),
					...(v.full ? { full: true } : {})
				});
				lostToast('Checkpoint made', made);
				picked = null;
				await load();
			}
		});
	const make = button('Checkpoint now', { icon: 'plus' }, () => say1('Checkpoint now'));
	const undo = button('Undo last turn', { icon: 'back' }, () =>
		confirm({
			title: 'Undo the last turn?',
			text: 'Programs stop, and the files are as they were before the last turn that changed something. What is now becomes a checkpoint, so this can be undone too.',
			submit: 'Undo',
			run: async () => {
				await post(boxPath(box.id, '/undo'), { turns: 1 });
				toast('Undone');
				await refreshBox(box.id);
				await load();
			}
		})
	);
	put(
		panel,
		h('h2', { class: 'unseen' }, 'History'),
		h(
			'div',
			{ class: 'tools' },
			h('p', { class: 'quiet grow' }, 'Every turn that changed something left a point to go back to.'),
			h('div', { class: 'row' }, undo, make)
		),
		h('div', { class: 'history' }, tree, side)
	);

	const byNumber = (n) => list.find((c) => c.number === n);

	function pointRow(r, width, first) {
		const c = r.c,
			on1 = c.number === picked;
		return h(
			'div',
			{
				role: 'option',
				class: 'point-row',
				tabindex: on1 ? 0 : -1,
				'aria-selected': String(on1),
				data: { number: c.number },
				onclick: () => choose(c.number)
			},
			graph(r, width, first),
			h(
				'span',
				{ class: 'point-text' },
				h(
					'span',
					{ class: 'line' },
					h('b', { class: 'mono' }, `#${c.number}`),
					h('span', { class: `kind kind-${c.kind}` }, c.kind),
					c.head ? h('span', { class: 'kind here' }, 'here') : null,
					c.full ? h('span', { class: 'kind' }, 'programs') : null,
					tagsOf(c).map((t) => h('span', { class: 'chip' }, icon('tag'), t))
				),
				h(
					'span',
					{ class: 'line' },
					h('span', { class: 'message' }, wordsOf(c) || (c.origin ? `from ${c.origin}` : 'no message'))
				)
			),
			h('small', { class: 'num', title: full(c.created) }, `${ago(c.created)}`)
		);
	}

	function draw() {
		const rows = layout(list),
			width = x(Math.max(0, ...rows.map((r) => Math.max(r.lane, ...r.above, ...r.below)))) + 14;
		const had = tree.contains(document.activeElement);
		put(
			tree,
			rows.map((r, n) => pointRow(r, width, n === 0))
		);
		if (had) tree.querySelector('[tabindex="0"]')?.focus();
	}

	function choose(n) {
		picked = n;
		const c = byNumber(n);
		against = c?.parent >= 0 && c.parent !== null && byNumber(c.parent) ? String(c.parent) : null;
		draw();
		drawPoint();
	}

	tree.addEventListener('keydown', (e) => {
		const all = [...tree.children],
			at = all.indexOf(document.activeElement);
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
		if (to !== undefined && all[to]) {
			e.preventDefault();
			choose(Number(all[to].dataset.number));
			tree.querySelector('[tabindex="0"]')?.focus();
		}
	});

	function tagDialog(c) {
		dialog({
			title: `Tag checkpoint ${c.number}`,
			text: 'A tag names it, and keeps it from being thinned out.',
			body: field(
				'Tag',
				h('input', { name: 'tag', required: true, autocomplete: 'off', spellcheck: 'false', maxlength: 64 })
			),
			submit: 'Tag',
			run: async (v) => {
				await call('PUT', boxPath(box.id, `/tags/${encodeURIComponent(v.tag)}`), { json: { ref: String(c.number) } });
				await load();
			}
		});
	}

	function untag(t) {
		confirm({
			title: `Remove the tag ${t}?`,
			text: 'The checkpoint stays until it is thinned out.',
			submit: 'Remove',
			run: async () => {
				await call('DELETE', boxPath(box.id, `/tags/${encodeURIComponent(t)}`));
				await load();
			}
		});
	}

	function rollback(c) {
		confirm({
			title: `Roll back to checkpoint ${c.number}?`,
			text: c.full
				? 'Programs stop; files and programs are as they were then. The files of now become a checkpoint, so those can be had back.'
				: 'Programs stop, the files are as they were then, and the box starts again. What is now becomes a checkpoint, so this can be undone.',
			submit: 'Roll back',
			run: async () => {
				await post(boxPath(box.id, '/rollback'), { ref: String(c.number) });
				toast(`Rolled back to #${c.number}`);
				picked = null;
				await refreshBox(box.id);
				await load();
			}
		});
	}

	async function drawDiff(out, from, to) {
		const mine = ++showing;
		put(out, h('p', { class: 'quiet' }, 'Comparing…'));
		try {
			const changes = listOf(await get(boxPath(box.id, '/diff'), { from, to, format: 'json' }, signal), 'changes');
			if (mine !== showing) return;
			const files = h(
				'ul',
				{ class: 'changes' },
				changes
					.slice(0, FILES_SHOWN)
					.map((f) =>
						h(
							'li',
							{ class: `c-${f.kind}` },
							h('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[f.kind] ?? '?'),
							h('span', { class: 'unseen' }, `${f.kind}: `),
							h('span', { class: 'mono' }, f.path),
							h('small', {}, f.type === 'file' || f.type === 'f' ? bytes(f.size) : f.type)
						)
					)
			);
			put(
				out,
				changes.length === 0
					? h('p', { class: 'quiet' }, 'Nothing differs.')
					: [
							h(
								'p',
								{ class: 'quiet' },
								`${changes.length} ${changes.length === 1 ? 'path differs' : 'paths differ'}`
							),
							files,
							changes.length > FILES_SHOWN ? h('p', { class: 'quiet' }, `${changes.length - FILES_SHOWN} more`) : null
						]
			);
			if (!changes.length) return;
			const { text, cut } = await textDiff(box, from, to, signal);
			if (mine === showing && text.trim())
				out.append(
					diffLines(text),
					cut ? h('p', { class: 'quiet' }, `Cut after ${bytes(DIFF_MAX)}. "den diff" shows all of it.`) : h('span')
				);
			announce(`${changes.length} paths differ`);
		} catch (err) {
			if (mine === showing && !signal.aborted) put(out, failed(err));
		}
	}

	function drawPoint() {
		const c = byNumber(picked);
		if (!c) {
			put(side);
			return;
		}
		const out = h('div', { class: 'diff-out' });
		const from = h(
			'select',
			{ id: 'against' },
			c.parent >= 0 && c.parent !== null ? null : h('option', { value: '' }, 'the template'),
			[...list]
				.reverse()
				.filter((o) => o.number !== c.number)
				.map((o) =>
					h(
						'option',
						{ value: String(o.number) },
						`#${o.number}${o.number === c.parent ? ' (parent)' : ''} ${wordsOf(o)}`.slice(0, 60)
					)
				)
		);
		from.value = against ?? '';
		from.addEventListener('change', () => {
			against = from.value || null;
			put(versus, `to #${c.number}`);
			drawDiff(out, against, String(c.number));
		});
		const versus = h('span', { class: 'versus' }, `to #${c.number}`);
		const nowButton = button('Compare with now', {}, () =>
			busy(nowButton, async () => {
				put(versus, `to now; from #${c.number}`);
				await drawDiff(out, String(c.number), 'now');
			})
		);
		put(
			side,
			h(
				'header',
				{},
				h(
					'div',
					{},
					h('h3', {}, `Checkpoint ${c.number}`),
					h(
						'p',
						{ class: 'quiet' },
						[full(c.created), c.size ? bytes(c.size) : null, c.full ? `programs: ${bytes(c.memory ?? 0)}` : null, c.origin ? `from ${c.origin}` : null]
							.filter(Boolean)
							.join(' · ')
					)
				),
				h(
					'div',
					{ class: 'row' },
					button('Fork', { icon: 'fork' }, () => forkBox(box, c.number, c.full)),
					button('Roll back', { icon: 'back' }, () => rollback(c)),
					button('Tag', { icon: 'tag' }, () => tagDialog(c))
				)
			),
			h('p', { class: 'message mono' }, wordsOf(c)),
			tagsOf(c).length
				? h(
						'p',
						{ class: 'chips' },
						tagsOf(c).map((t) =>
							h(
								'span',
								{ class: 'chip' },
								icon('tag'),
								t,
								button(`Remove the tag ${t}`, { icon: 'close', bare: true, kind: 'ghost tiny' }, () => untag(t))
							)
						)
					)
				: null,
			h('div', { class: 'compare' }, h('label', { for: 'against' }, 'Changes from'), from, versus, nowButton),
			out
		);
		drawDiff(out, against, String(c.number));
	}

	async function load() {
		try {
			list = await getAll(boxPath(box.id, '/checkpoints'), 'checkpoints', signal);
		} catch (err) {
			if (!signal.aborted) {
				put(tree, failed(err, load));
				put(side);
			}
			return;
		}
		if (!list.length) {
			put(
				tree,
				h('p', { class: 'quiet' }, box.history === 'off' ? 'This box keeps no history.' : 'Nothing has changed yet.')
			);
			return;
		}
		const fresh = !byNumber(picked);
		if (fresh) choose((list.find((c) => c.head) ?? list[list.length - 1]).number);
		else draw();
	}

	let soon = 0;
	on(
		'event',
		(e) => {
			if (e.box === box.id && ['checkpoint.made', 'rollback', 'box.started'].includes(e.kind)) {
				clearTimeout(soon);
				soon = setTimeout(load, 250);
			}
		},
		signal
	);
	signal.addEventListener('abort', () => clearTimeout(soon));
	load();
}
