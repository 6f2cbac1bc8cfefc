/*
 * Making elements. Everything that comes from a box is hostile, so text reaches the document in one way
 * only: as a text node. There is no innerHTML on this page, and the server's policy (trusted types)
 * makes it throw.
 */
const SVG = 'http://www.w3.org/2000/svg';

function fill(el, props) {
	for (const [key, value] of Object.entries(props ?? {})) {
		if (value === undefined || value === null || value === false) continue;
		if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
		else if (key === 'data') Object.assign(el.dataset, value);
		else if (key === 'value' || key === 'checked' || key === 'selected') el[key] = value;
		else el.setAttribute(key, value === true ? '' : String(value));
	}
}

/* h('p', { class: 'x' }, 'text', element, null, [more]) */
export function h(tag, props, ...children) {
	const el = document.createElement(tag);
	fill(el, props);
	el.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
	return el;
}

export function svg(tag, props, ...children) {
	const el = document.createElementNS(SVG, tag);
	fill(el, props);
	el.append(...children);
	return el;
}

export function put(parent, ...children) {
	parent.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
	return parent;
}

/* Sets a text only when it changed, so that nothing is read out or repainted for nothing. */
export function say(el, text) {
	if (el.textContent !== text) el.textContent = text;
}

const paths = {
	box: 'M3 5.2 8 2.5l5 2.7v5.6L8 13.5l-5-2.7zM3 5.2 8 8l5-2.8M8 8v5.5',
	pulse: 'M1.5 8.5h3l2-5 3 9 2-5.5h3',
	layers: 'm8 2 6 3-6 3-6-3zM2 8l6 3 6-3M2 11l6 3 6-3',
	key: 'M10.5 2a3.5 3.5 0 1 0 .01 7 3.5 3.5 0 0 0-.01-7zM8 8l-5.5 5.5M4 12l1.5 1.5M6 10l1.5 1.5',
	more: 'M3 8h.01M8 8h.01M13 8h.01',
	plus: 'M8 3v10M3 8h10',
	close: 'm4 4 8 8M12 4l-8 8',
	pause: 'M5.5 3.5v9M10.5 3.5v9',
	play: 'M5 3.5v9l7-4.5z',
	stop: 'M4.5 4.5h7v7h-7z',
	trash: 'M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9',
	fork: 'M4.5 2.5v3c0 1.5 1 2.5 3.5 2.5s3.5-1 3.5-2.5v-3M8 8v5.5',
	back: 'M3 7.5h7a3 3 0 0 1 0 6H7M6 4 2.5 7.5 6 11',
	tag: 'M2.5 2.5h5l6 6-5 5-6-6zM5.2 5.2h.01',
	folder: 'M2 4h4l1.5 1.5H14v7H2z',
	file: 'M4 2h5l3 3v9H4zM9 2v3h3',
	link: 'M6.5 9.5 9.5 6.5M7 4.5 9 2.5a3 3 0 0 1 4.5 4.5l-2 2M9 11.5l-2 2A3 3 0 0 1 2.5 9l2-2',
	up: 'M8 12.5v-9M4 7.5l4-4 4 4',
	down: 'M8 3.5v9M4 8.5l4 4 4-4',
	sun: 'M8 5.2a2.8 2.8 0 1 0 .01 0zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9',
	moon: 'M13 9.8A5.5 5.5 0 0 1 6.2 3 5.5 5.5 0 1 0 13 9.8z',
	out: 'M9.5 2.5h4v11h-4M2.5 8h7M7 5l3 3-3 3',
	check: 'm3 8.5 3.5 3.5L13 4.5',
	copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
	chevron: 'm6 3.5 4.5 4.5L6 12.5',
	edit: 'm3 13 .7-2.8L11 3l2 2-7.2 7.3z',
	search: 'M7 2.5a4.5 4.5 0 1 0 .01 0zM10.3 10.3l3.2 3.2',
	term: 'm3 4.5 3.5 3.5L3 11.5M8 12h5',
	clock: 'M8 2a6 6 0 1 0 .01 0zM8 4.8V8l2.2 1.6',
	shield: 'M8 2l5 1.8v4C13 11 10.8 13.2 8 14c-2.8-.8-5-3-5-6.2v-4z',
	menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11'
};
export function icon(name) {
	const p = svg('path', { d: paths[name] });
	return svg(
		'svg',
		{ class: `icon icon-${name}`, viewBox: '0 0 16 16', 'aria-hidden': 'true', focusable: 'false' },
		p
	);
}

/* A button with an icon; label is what people hear, and see unless bare. */
export function button(label, { icon: name, kind = '', bare = false, ...props } = {}, run) {
	return h(
		'button',
		{
			type: 'button',
			class: `button ${kind}${bare ? ' bare' : ''}`,
			'aria-label': bare ? label : null,
			title: bare ? label : null,
			onclick: run,
			...props
		},
		name ? icon(name) : null,
		bare ? null : h('span', {}, label)
	);
}

/* Told to screen readers in moderation: one at a time, the last wins within a second. */
let told = 0;
export function announce(text) {
	clearTimeout(told);
	told = setTimeout(() => {
		document.getElementById('live').textContent = text;
	}, 400);
}

export function toast(text) {
	const t = h('p', { class: 'toast' }, icon('check'), h('span', {}, text));
	document.getElementById('toasts').append(t);
	setTimeout(() => t.remove(), 5000);
}

/* A failure stays until it is put away: it says what to do next, and people read at their own pace. */
export function complain(err) {
	if (err.quiet) return;
	const t = h(
		'div',
		{ class: 'toast bad' },
		h('div', {}, h('strong', {}, err.message || String(err)), err.next ? h('p', {}, err.next) : null)
	);
	t.append(button('Dismiss', { icon: 'close', bare: true }, () => t.remove()));
	const all = document.getElementById('alerts');
	while (all.children.length > 2) all.firstChild.remove();
	all.append(t);
}

/* Runs what a button does: it cannot be pressed twice meanwhile, a failure is shown. */
export async function busy(el, work) {
	if (el.getAttribute('aria-disabled') === 'true') return undefined;
	el.setAttribute('aria-disabled', 'true');
	try {
		return await work();
	} catch (err) {
		complain(err);
		return undefined;
	} finally {
		el.removeAttribute('aria-disabled');
	}
}
