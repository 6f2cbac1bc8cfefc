/* /v1, as this page uses it. The session is a cookie that no script can read. */
export class ApiError extends Error {
	constructor(status, code, message, next) {
		super(message);
		this.status = status;
		this.code = code;
		this.next = next;
	}
}

let signedOut = () => {};
export function onSignedOut(fn) {
	signedOut = fn;
}

async function failure(res) {
	let e = null;
	try {
		e = (await res.json()).error;
	} catch {
		/* not JSON: a proxy between us, or a connection that broke */
	}
	const err = new ApiError(
		res.status,
		e?.code ?? 'unknown',
		e?.message ?? `The server answered ${res.status}.`,
		e?.next
	);
	if (res.status === 401 && !res.url.endsWith('/ui/session')) {
		err.quiet = true;
		signedOut();
	}
	return err;
}

/* The answer as it is: for files and diffs. */
export async function raw(method, path, { query, body, type, headers, signal } = {}) {
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(query ?? {})) if (v !== undefined && v !== null && v !== '') q.set(k, v);
	const url = q.size ? `${path}?${q}` : path;
	const h = { ...headers };
	if (method !== 'GET') h['X-Den-Page'] = '1';
	if (type) h['Content-Type'] = type;
	let res;
	try {
		res = await fetch(url, {
			method,
			body,
			headers: h,
			signal,
			credentials: 'same-origin',
			cache: 'no-store',
			redirect: 'error'
		});
	} catch (err) {
		if (err.name === 'AbortError') err.quiet = true;
		else
			err = new ApiError(
				0,
				'unreachable',
				'The server cannot be reached.',
				'Boxes go on without it. This page tries again by itself.'
			);
		throw err;
	}
	if (!res.ok) throw await failure(res);
	return res;
}

export async function call(method, path, { json, ...opt } = {}) {
	if (json !== undefined) {
		opt.body = JSON.stringify(json);
		opt.type = 'application/json';
	}
	const res = await raw(method, path, opt);
	const text = await res.text();
	return text ? JSON.parse(text) : null;
}

/* All pages of a list. */
export async function getAll(path, name, signal, max = 5000) {
	const list = [];
	let cursor;
	do {
		const page = await get(path, { limit: 1000, cursor }, signal);
		list.push(...listOf(page, name));
		cursor = page.next_cursor;
	} while (cursor && list.length < max);
	return list;
}

export const get = (path, query, signal) => call('GET', path, { query, signal });
export const post = (path, json) => call('POST', path, { json: json ?? {} });

export const boxPath = (id, rest = '') => `/v1/boxes/${encodeURIComponent(id)}${rest}`;

/* A list in an answer, whatever wraps it. */
export function listOf(answer, ...names) {
	if (Array.isArray(answer)) return answer;
	for (const n of names) if (Array.isArray(answer?.[n])) return answer[n];
	return [];
}

export function socketUrl(path, query) {
	const u = new URL(path, location.href);
	u.protocol = u.protocol === 'https:' ? 'wss:' : 'ws:';
	for (const [k, v] of Object.entries(query ?? {}))
		if (v !== undefined && v !== null && v !== '') u.searchParams.set(k, v);
	return u;
}
