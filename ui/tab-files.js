/* Files of a box. Names are any bytes: they are text here and nothing else. */
import { boxPath, call, get, listOf, post, raw } from './api.js';
import { announce, button, complain, h, icon, put, say, toast } from './dom.js';
import { bytes, full, ms, time } from './format.js';
import { on, store } from './store.js';
import { cell, confirm, dialog, empty, failed, field, menuButton, rovingRows, row, table } from './widgets.js';

const VIEW_MAX = 256 << 10;

/*
 * Where something is. Most names are text; one that is not comes and goes as base64 of its bytes, and is shown
 * with marks where it has no characters.
 */
class Place {
	constructor(bytes) {
		this.bytes = bytes;
		this.text = new TextDecoder().decode(bytes);
		this.exact = this.text === '' || !this.text.includes('\ufffd');
	}

	static of(text) {
		return new Place(new TextEncoder().encode(text));
	}

	get b64() {
		return btoa(String.fromCharCode(...this.bytes));
	}

	/* as members of a query or a body; key: "path", "from", "to" */
	as(key) {
		return this.exact ? { [key]: this.text } : { [`${key}_b64`]: this.b64 };
	}

	below(name) {
		const root = this.bytes.length === 1;
		return new Place(Uint8Array.from([...(root ? [] : this.bytes), 47, ...name]));
	}

	/* "/", "/a", "/a/b" */
	steps() {
		const list = [Place.of('/')];
		for (let at = 1; at < this.bytes.length; at++)
			if (this.bytes[at] === 47) list.push(new Place(this.bytes.slice(0, at)));
		return this.bytes.length > 1 ? [...list, this] : list;
	}

	get last() {
		return new TextDecoder().decode(this.bytes.slice(this.bytes.lastIndexOf(47) + 1)) || '/';
	}

	get above() {
		return new Place(this.bytes.slice(0, Math.max(1, this.bytes.lastIndexOf(47))));
	}
}
const bytesOf = (e) =>
	e.path_b64 ? Uint8Array.from(atob(e.path_b64), (c) => c.charCodeAt(0)) : new TextEncoder().encode(e.path);
const isDir = (e) => e.type === 'directory' || (e.type === 'symlink' && e.target_type === 'directory');
const modified = (e) => (e.mtime_ns !== undefined ? e.mtime_ns / 1e6 : ms(e.mtime ?? e.modified));
const nameOf = (e) => e.path.replace(/^.*\/(?=.)/, '');
const modeOf = (e) => (typeof e.mode === 'number' ? e.mode.toString(8).padStart(4, '0') : (e.mode ?? ''));

/* Text, or null: it has bytes that no text has. */
function asText(data) {
	if (data.subarray(0, 8192).includes(0)) return null;
	try {
		return new TextDecoder('utf-8', { fatal: true }).decode(data, { stream: true });
	} catch {
		return null;
	}
}

function hexOf(data) {
	const lines = [];
	for (let at = 0; at < Math.min(data.length, 4096); at += 16) {
		const part = [...data.subarray(at, at + 16)];
		lines.push(
			`${at.toString(16).padStart(6, '0')}  ${part
				.map((b) => b.toString(16).padStart(2, '0'))
				.join(' ')
				.padEnd(47)}  ${part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '·')).join('')}`
		);
	}
	return lines.join('\n');
}

export function filesTab(panel, box, signal) {
	const path = (p) => boxPath(box.id, p);
	const crumbs = h('nav', { class: 'path', 'aria-label': 'Folder' });
	const pick = h('input', {
		type: 'file',
		multiple: true,
		class: 'unseen',
		tabindex: -1,
		'aria-label': 'Files to upload'
	});
	const side = h('section', { class: 'preview', 'aria-label': 'Preview', hidden: true });
	const none = h('div', {});
	const progress = h('p', { class: 'quiet', role: 'status' });
	const { el, body } = table('Files', [
		{ label: 'Name' },
		{ label: 'Size', class: 'c-num' },
		{ label: 'Mode', class: 'c-mode' },
		{ label: 'Owner', class: 'c-owner' },
		{ label: 'Changed', class: 'c-time' },
		{ label: 'Actions', hidden: true, class: 'c-act' }
	]);
	rovingRows(body, '.name');
	let dir = null,
		open = null,
		loading = 0;
	const at = (e) => dir.below(bytesOf(e));

	function download(name, from, tar) {
		const a = h('a', {
			href: `${path(tar ? '/tar' : '/files')}?${new URLSearchParams(from.as('path'))}`,
			download: tar ? `${name}.tar` : name
		});
		a.click();
	}

	function rename(e) {
		const to = h('input', { name: 'to', required: true, value: nameOf(e), autocomplete: 'off', spellcheck: 'false' });
		dialog({
			title: `Rename ${nameOf(e)}`,
			body: field('New name', to, 'A name, or a whole path to move it there'),
			submit: 'Rename',
			run: async (v) => {
				await post(path('/files/move'), {
					...at(e).as('from'),
					...(v.to.startsWith('/') ? { to: v.to } : dir.below(new TextEncoder().encode(v.to)).as('to')),
					no_replace: true
				});
				await load();
			}
		});
		to.select();
	}

	function remove(e) {
		confirm({
			title: `Delete ${nameOf(e)}?`,
			text: isDir(e)
				? 'The folder and everything in it goes. A checkpoint before may still have it.'
				: 'A checkpoint before may still have it.',
			submit: 'Delete',
			run: async () => {
				await call('DELETE', path('/files'), {
					query: { ...at(e).as('path'), recursive: e.type === 'directory' ? 1 : undefined }
				});
				if (open === at(e).b64) shut();
				await load();
			}
		});
	}

	function shut() {
		open = null;
		side.hidden = true;
		put(side);
	}

	async function view(e) {
		const from = at(e),
			close = button('Close preview', { icon: 'close', bare: true, kind: 'ghost' }, () => {
				shut();
				[...body.querySelectorAll('.name')].find((n) => n.dataset.path === from.b64)?.focus();
			});
		open = from.b64;
		const out = h('div', { class: 'preview-body' }, h('p', { class: 'quiet' }, 'Reading…'));
		side.hidden = false;
		put(
			side,
			h(
				'header',
				{},
				h('h3', {}, nameOf(e)),
				h('span', { class: 'quiet' }, bytes(e.size)),
				button('Download', { icon: 'down', kind: 'ghost', bare: true }, () => download(nameOf(e), from)),
				close
			),
			out
		);
		close.focus();
		try {
			const res = await raw('GET', path('/files'), {
				query: from.as('path'),
				headers: e.size ? { Range: `bytes=0-${VIEW_MAX - 1}` } : {},
				signal
			});
			const data = new Uint8Array(await res.arrayBuffer()).subarray(0, VIEW_MAX);
			if (open !== from.b64) return;
			const text = asText(data);
			put(
				out,
				data.length === 0
					? h('p', { class: 'quiet' }, 'It is empty.')
					: h('pre', { tabindex: 0, role: 'region', 'aria-label': `Content of ${nameOf(e)}` }, text ?? hexOf(data)),
				e.size > data.length
					? h('p', { class: 'quiet' }, `The first ${bytes(data.length)} of ${bytes(e.size)}.`)
					: null,
				text === null && data.length > 4096
					? h('p', { class: 'quiet' }, 'Not text: the first 4 KiB in hexadecimal.')
					: null
			);
		} catch (err) {
			put(out, failed(err));
		}
	}

	function fileRow(e) {
		const name = nameOf(e),
			full1 = at(e),
			go = isDir(e) || e.type === 'symlink';
		const label = h(
			'button',
			{
				type: 'button',
				class: 'name',
				data: { path: full1.b64 },
				onclick: () => {
					if (e.type === 'symlink') follow(e);
					else if (go) enter(full1);
					else if (e.type === 'file') view(e);
				}
			},
			icon(isDir(e) ? 'folder' : e.type === 'symlink' ? 'link' : 'file'),
			h('span', {}, name),
			e.target ? h('small', {}, `→ ${e.target}`) : null
		);
		return row(
			cell('Name', { class: 'c-name' }, label),
			cell('Size', { class: 'c-num' }, isDir(e) ? '' : bytes(e.size)),
			cell('Mode', { class: 'c-mode mono' }, modeOf(e)),
			cell('Owner', { class: 'c-owner' }, e.user ?? String(e.uid ?? '')),
			cell('Changed', { class: 'c-time', title: full(modified(e)) }, time(modified(e))),
			cell(
				'Actions',
				{ class: 'c-act' },
				menuButton(`Actions for ${name}`, () => [
					{
						label: e.type === 'directory' ? 'Download as tar' : 'Download',
						icon: 'down',
						run: () => download(name, full1, e.type === 'directory')
					},
					{ label: 'Rename…', icon: 'edit', run: () => rename(e) },
					{ label: 'Delete…', icon: 'trash', kind: 'danger', run: () => remove(e) }
				])
			)
		);
	}

	async function follow(e) {
		const to = at(e);
		try {
			const s = await get(path('/files/stat'), { ...to.as('path'), follow: 1 }, signal);
			if ((s.entry ?? s).type === 'directory') enter(to);
			else view({ ...e, size: (s.entry ?? s).size });
		} catch (err) {
			complain(err);
		}
	}

	function drawCrumbs() {
		const steps = dir.steps();
		put(
			crumbs,
			h(
				'ol',
				{},
				steps.map((p, n) =>
					h(
						'li',
						{},
						h(
							'button',
							{ type: 'button', 'aria-current': n === steps.length - 1 ? 'location' : null, onclick: () => enter(p) },
							p.last
						)
					)
				)
			)
		);
	}

	async function load() {
		const mine = ++loading,
			here = dir;
		try {
			const list = listOf(await get(path('/files/list'), here.as('path'), signal), 'entries', 'files');
			if (mine !== loading) return;
			list.sort((a, b) => isDir(b) - isDir(a) || (nameOf(a) < nameOf(b) ? -1 : 1));
			const had = body.contains(document.activeElement)
				? document.activeElement.closest('tr')?.querySelector('.name')?.dataset.path
				: null;
			const rows = list.slice(0, 2000).map(fileRow);
			put(
				body,
				here.bytes.length === 1
					? null
					: row(
							cell(
								'Name',
								{ class: 'c-name' },
								h(
									'button',
									{ type: 'button', class: 'name', data: { path: '..' }, onclick: () => enter(here.above) },
									icon('back'),
									h('span', {}, '..')
								)
							),
							cell('', { class: 'c-num' }),
							cell('', { class: 'c-mode' }),
							cell('', { class: 'c-owner' }),
							cell('', { class: 'c-time' }),
							cell('', { class: 'c-act' })
						),
				rows
			);
			put(
				none,
				list.length === 0
					? h('p', { class: 'quiet' }, 'This folder is empty. Drop files here to upload them.')
					: list.length > 2000
						? h('p', { class: 'quiet' }, `${list.length - 2000} more are not shown.`)
						: null
			);
			el.hidden = false;
			if (had)
				(
					[...body.querySelectorAll('.name')].find((n) => n.dataset.path === had) ?? body.querySelector('.name')
				)?.focus();
		} catch (err) {
			if (mine !== loading || signal.aborted) return;
			const st = store.boxes.get(box.id)?.state;
			el.hidden = true;
			put(
				none,
				st && st !== 'running'
					? empty(`This box is ${st}`, 'Its files can be read while it is running.')
					: failed(err, load)
			);
		}
	}

	async function enter(to) {
		const inside = panel.contains(document.activeElement);
		dir = to;
		shut();
		drawCrumbs();
		await load();
		announce(`Folder ${dir.text}, ${body.children.length} entries`);
		if (inside) body.querySelector('.name')?.focus();
	}

	async function upload(files) {
		let n = 0;
		for (const f of files) {
			say(progress, `Uploading ${f.name} (${++n} of ${files.length})…`);
			try {
				await raw('PUT', path('/files'), {
					query: dir.below(new TextEncoder().encode(f.name)).as('path'),
					body: f,
					type: 'application/octet-stream'
				});
			} catch (err) {
				complain(err);
				break;
			}
		}
		say(progress, '');
		if (n) toast(n === 1 ? `${files[0].name} uploaded` : `${n} files uploaded`);
		await load();
	}

	pick.addEventListener('change', async () => {
		await upload([...pick.files]);
		pick.value = '';
	});
	const folder = () =>
		dialog({
			title: 'New folder',
			body: field('Name', h('input', { name: 'name', required: true, autocomplete: 'off', spellcheck: 'false' })),
			submit: 'Create',
			run: async (v) => {
				await post(path('/files/mkdir'), dir.below(new TextEncoder().encode(v.name)).as('path'));
				await load();
			}
		});
	const drop = h(
		'div',
		{ class: 'files' },
		h('div', { class: 'files-main' }, h('div', { class: 'wrap' }, el), none),
		side
	);
	put(
		panel,
		h('h2', { class: 'unseen' }, 'Files'),
		h(
			'div',
			{ class: 'tools' },
			crumbs,
			progress,
			h(
				'div',
				{ class: 'row' },
				pick,
				button('Upload', { icon: 'up' }, () => pick.click()),
				button('New folder', { icon: 'folder' }, folder),
				button('Download folder as tar', { icon: 'down', bare: true }, () =>
					download(dir.bytes.length === 1 ? 'root' : dir.last, dir, true)
				)
			)
		),
		drop
	);
	drop.addEventListener('dragover', (e) => {
		e.preventDefault();
		drop.classList.add('over');
	});
	drop.addEventListener('dragleave', () => drop.classList.remove('over'));
	drop.addEventListener('drop', (e) => {
		e.preventDefault();
		drop.classList.remove('over');
		upload([...e.dataTransfer.files]);
	});

	let soon = 0;
	const again = () => {
		clearTimeout(soon);
		soon = setTimeout(load, 400);
	};
	on(
		'event',
		(e) => {
			if (
				e.box === box.id &&
				['file.changed', 'checkpoint.made', 'rollback', 'exec.ended', 'box.started', 'box.resumed'].includes(e.kind)
			)
				again();
		},
		signal
	);
	signal.addEventListener('abort', () => clearTimeout(soon));
	dir = Place.of(
		box.workdir && box.workdir.startsWith('/')
			? box.workdir
			: box.user && box.user !== 'root'
				? `/home/${box.user}`
				: '/root'
	);
	drawCrumbs();
	load().then(() => {
		if (el.hidden && dir.bytes.length > 1 && store.boxes.get(box.id)?.state === 'running') enter(Place.of('/'));
	});
}
