/* Dialogs, menus, tabs: the pieces with keyboard and screen-reader habits of their own. */
import { button, h, icon, put } from './dom.js';

/*
 * A modal dialog. The browser keeps focus inside, closes on Escape and gives focus back.
 * run(values, close) is called on submit; it may throw, which is shown inside.
 */
let dialogs = 0;
export function dialog({ title, text, body, submit = 'OK', kind = 'primary', run, cancel = 'Cancel', wide = false }) {
	const id = `dialog-${++dialogs}`;
	const came = document.activeElement;
	const problem = h('div', { class: 'problem', role: 'alert' });
	const go = submit ? h('button', { type: 'submit', class: `button ${kind}` }, h('span', {}, submit)) : null;
	const form = h(
		'form',
		{ method: 'dialog', novalidate: true },
		h(
			'header',
			{},
			h('h2', { id }, title),
			button('Close', { icon: 'close', bare: true, kind: 'ghost' }, () => box.close())
		),
		h('div', { class: 'dialog-body' }, text ? h('p', {}, text) : null, body, problem),
		h('footer', {}, cancel ? button(cancel, {}, () => box.close()) : null, go)
	);
	const box = h('dialog', { class: wide ? 'wide' : null, 'aria-labelledby': id }, form);
	form.addEventListener('submit', async (e) => {
		e.preventDefault();
		if (!go || go.getAttribute('aria-disabled') === 'true') return;
		const bad = form.querySelector(':invalid');
		if (bad) {
			put(
				problem,
				h('strong', {}, bad.dataset.wrong || `${bad.labels?.[0]?.textContent ?? 'A field'}: ${bad.validationMessage}`)
			);
			bad.focus();
			return;
		}
		go.setAttribute('aria-disabled', 'true');
		put(problem);
		try {
			await run?.(Object.fromEntries(new FormData(form)), form);
			box.close();
		} catch (err) {
			put(problem, h('strong', {}, err.message), err.next ? h('p', {}, err.next) : null);
		} finally {
			go.removeAttribute('aria-disabled');
		}
	});
	box.addEventListener('close', () => {
		box.remove();
		/* the button that opened it may have been drawn anew meanwhile */
		if (came?.isConnected) came.focus();
		else document.getElementById('main')?.focus();
	});
	document.body.append(box);
	box.showModal();
	(form.querySelector('[autofocus], .dialog-body input, .dialog-body select, .dialog-body textarea') ?? go)?.focus();
	return box;
}

export function confirm({ title, text, submit, run }) {
	return dialog({ title, text, submit, kind: 'danger', run });
}

let fields = 0;
/* A labelled field of a form. hint is read with it. */
export function field(label, input, hint) {
	const id = `f${++fields}`;
	input.id = id;
	if (hint) input.setAttribute('aria-describedby', `${id}-hint`);
	return h(
		'div',
		{ class: 'field' },
		h('label', { for: id }, label),
		input,
		hint ? h('p', { class: 'hint', id: `${id}-hint` }, hint) : null
	);
}

/* A button that opens a menu. items(): [{ label, icon, kind, run, disabled }] at the time of opening. */
export function menuButton(label, items, { icon: name = 'more', kind = 'ghost', bare = true } = {}) {
	const b = button(label, { icon: name, bare, kind, 'aria-haspopup': 'menu', 'aria-expanded': 'false' }, () =>
		toggle()
	);
	let menu = null;

	function close(back) {
		if (!menu) return;
		menu.remove();
		menu = null;
		b.setAttribute('aria-expanded', 'false');
		document.removeEventListener('pointerdown', outside, true);
		window.removeEventListener('scroll', away, true);
		if (back) b.focus();
	}
	const outside = (e) => {
		if (!menu.contains(e.target) && !b.contains(e.target)) close(false);
	};
	const away = () => close(false);

	function key(e) {
		const all = [...menu.querySelectorAll('[role=menuitem]')];
		const at = all.indexOf(document.activeElement);
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
		if (to !== undefined) {
			all[(to + all.length) % all.length].focus();
			e.preventDefault();
		} else if (e.key === 'Escape') {
			e.stopPropagation();
			close(true);
		} else if (e.key === 'Tab') {
			close(true);
		}
	}

	function toggle() {
		if (menu) {
			close(true);
			return;
		}
		menu = h(
			'div',
			{ class: 'menu', role: 'menu', 'aria-label': label, onkeydown: key },
			items().map((i) =>
				h(
					'button',
					{
						type: 'button',
						role: 'menuitem',
						tabindex: -1,
						class: i.kind ?? '',
						onclick: () => {
							close(true);
							i.run();
						}
					},
					icon(i.icon),
					h('span', {}, i.label)
				)
			)
		);
		(document.getElementById('main') ?? document.body).append(menu);
		const r = b.getBoundingClientRect(),
			m = menu.getBoundingClientRect();
		menu.style.left = `${Math.max(8, Math.min(r.right - m.width, innerWidth - m.width - 8))}px`;
		menu.style.top = `${r.bottom + m.height + 8 > innerHeight ? Math.max(8, r.top - m.height - 4) : r.bottom + 4}px`;
		b.setAttribute('aria-expanded', 'true');
		document.addEventListener('pointerdown', outside, true);
		window.addEventListener('scroll', away, true);
		menu.querySelector('[role=menuitem]')?.focus();
	}
	b.addEventListener('keydown', (e) => {
		if (e.key === 'ArrowDown' && !menu) {
			e.preventDefault();
			toggle();
		}
	});
	return b;
}

/* Tabs with roving focus: arrows move and choose, Home and End too. tabs: [{ id, label, icon }] */
export function tabs(label, list, current, choose) {
	const all = list.map((t) =>
		h(
			'a',
			{
				role: 'tab',
				id: `tab-${t.id}`,
				href: t.href,
				'aria-selected': String(t.id === current),
				'aria-controls': 'panel',
				tabindex: t.id === current ? 0 : -1
			},
			h('span', {}, t.label)
		)
	);
	const bar = h('div', { class: 'tabs', role: 'tablist', 'aria-label': label }, all);
	bar.addEventListener('keydown', (e) => {
		const at = all.indexOf(document.activeElement);
		const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[e.key];
		if (to === undefined || at < 0) return;
		e.preventDefault();
		const n = (to + all.length) % all.length;
		all[n].focus();
		choose(list[n].id);
	});
	bar.select = (id) =>
		list.forEach((t, n) => {
			all[n].setAttribute('aria-selected', String(t.id === id));
			all[n].tabIndex = t.id === id ? 0 : -1;
			if (t.id === id) all[n].scrollIntoView({ block: 'nearest', inline: 'nearest' });
		});
	return bar;
}

/* Up and down, Home and End move between the rows of a list; Tab goes on to what is in a row. */
export function rovingRows(body, what) {
	body.addEventListener('keydown', (e) => {
		if (!['ArrowDown', 'ArrowUp', 'Home', 'End'].includes(e.key) || !e.target.matches(what)) return;
		const all = [...body.querySelectorAll(what)].filter((x) => x.offsetParent);
		const at = all.indexOf(e.target);
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
		if (all[to]) {
			e.preventDefault();
			all[to].focus();
		}
	});
}

/* A table whose meaning survives being laid out as cards on a narrow screen: the roles are said. */
export function table(label, columns) {
	const body = h('tbody', { role: 'rowgroup' });
	const head = h(
		'thead',
		{ role: 'rowgroup' },
		h(
			'tr',
			{ role: 'row' },
			columns.map((c) =>
				h(
					'th',
					{ role: 'columnheader', scope: 'col', class: c.class },
					c.hidden ? h('span', { class: 'unseen' }, c.label) : c.label
				)
			)
		)
	);
	const el = h('table', { role: 'table', 'aria-label': label, class: 'grid' }, head, body);
	return { el, body };
}
export function cell(label, props, ...children) {
	return h('td', { role: 'cell', 'data-label': label, ...props }, ...children);
}
export function row(...cells) {
	return h('tr', { role: 'row' }, ...cells);
}

/* Something to type into a shell, with a button that copies it. */
export function snippet(label, text) {
	const b = button(`Copy: ${label}`, { icon: 'copy', bare: true, kind: 'ghost' }, async () => {
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			/* only with https or on localhost: then at least it is selected */
			getSelection().selectAllChildren(pre);
			return;
		}
		put(b, icon('check'));
		setTimeout(() => put(b, icon('copy')), 1500);
	});
	const pre = h('pre', { tabindex: 0, 'aria-label': label, role: 'region' }, text);
	return h('figure', { class: 'snippet' }, h('figcaption', {}, label), pre, b);
}

export function empty(title, text, ...more) {
	return h('div', { class: 'empty' }, h('h2', {}, title), h('p', {}, text), ...more);
}

export function failed(err, again) {
	if (err.quiet) return h('div', {});
	return h(
		'div',
		{ class: 'empty bad' },
		h('h2', {}, 'That did not work'),
		h('p', {}, err.message),
		err.next ? h('p', {}, err.next) : null,
		again ? button('Try again', {}, again) : null
	);
}
