/*
 * What the page knows, kept fresh. News come by one event stream; while that is broken we poll, and say so.
 *
 *   OFF -> WAITING   open()         the stream was asked for
 *   WAITING -> LIVE  onopen         all is read anew, since news may have been missed
 *   LIVE -> BROKEN   onerror        polling begins; the browser, or we, try the stream again
 *   any -> OFF       close()        signed out, or nobody looks at the page for half a minute
 */
import { boxPath, get, getAll, listOf } from './api.js';
import { ms } from './format.js';

const KINDS = [
	'box.created',
	'box.started',
	'box.paused',
	'box.resumed',
	'box.stopped',
	'box.deleted',
	'box.forked',
	'box.changed',
	'box.lease',
	'box.labels',
	'exec.started',
	'exec.ended',
	'file.changed',
	'checkpoint.made',
	'rollback',
	'policy.changed',
	'net.denied',
	'net.connection',
	'net.incident',
	'template.made',
	'template.removed',
	'key.created',
	'key.revoked',
	'lost'
];
const POLL_MS = 4000,
	STATS_MS = 3000,
	USAGE_MS = 15000,
	HIDDEN_MS = 30000,
	KEPT_EVENTS = 500,
	KEPT_POINTS = 30,
	STATS_AT_ONCE = 40,
	ONE_BY_ONE = 5;

export const store = {
	who: null,
	keyNames: new Map() /* id -> name: one's own; for admins, all */,
	boxes: new Map(),
	loaded: false,
	stats: new Map() /* id -> { cpu, memory, memoryLimit, disk, pids, points[] } */,
	usage: new Map(),
	prices: null,
	currency: null,
	events: [],
	link: 'off',
	wanted: new Set() /* boxes whose figures somebody looks at */
};

const listeners = new Map();
/* topics: "boxes" "stats" "usage" "event" "link" */
export function on(topic, fn, signal) {
	if (!listeners.has(topic)) listeners.set(topic, new Set());
	listeners.get(topic).add(fn);
	signal?.addEventListener('abort', () => listeners.get(topic).delete(fn));
}
function tell(topic, arg) {
	for (const fn of listeners.get(topic) ?? []) fn(arg);
}

let stream = null,
	pollTimer = 0,
	statsTimer = 0,
	usageTimer = 0,
	hiddenTimer = 0,
	retry = 0,
	retryMs = 1000,
	refreshTimer = 0;

function setLink(state) {
	if (store.link === state) return;
	store.link = state;
	tell('link', state);
}

export async function refresh() {
	const list = await getAll('/v1/boxes', 'boxes');
	store.boxes = new Map(list.map((b) => [b.id, b]));
	store.loaded = true;
	for (const id of store.stats.keys()) if (!store.boxes.has(id)) store.stats.delete(id);
	tell('boxes');
}

export async function refreshBox(id) {
	try {
		store.boxes.set(id, await get(boxPath(id)));
	} catch (err) {
		if (err.status !== 404) throw err;
		store.boxes.delete(id);
	}
	tell('boxes', id);
}

/* A few boxes that changed are read one by one, many at once as the whole list: one look for a burst of events. */
const changed = new Set();
function refreshSoon(id) {
	changed.add(id ?? '');
	if (refreshTimer) return;
	refreshTimer = setTimeout(() => {
		const ids = [...changed];
		refreshTimer = 0;
		changed.clear();
		if (ids.includes('') || ids.length > ONE_BY_ONE) refresh().catch(() => {});
		else for (const one of ids) refreshBox(one).catch(() => {});
	}, 150);
}

function took(text) {
	let e;
	try {
		e = JSON.parse(text);
	} catch {
		return;
	}
	if (!e || typeof e.kind !== 'string') return;
	if (e.kind === 'key.created') readKeys().catch(() => {});
	store.events.push(e);
	if (store.events.length > KEPT_EVENTS) store.events.splice(0, store.events.length - KEPT_EVENTS);
	if (e.kind.startsWith('box.') || ['policy.changed', 'rollback', 'lost'].includes(e.kind)) refreshSoon(e.box);
	tell('event', e);
}

function connect() {
	stream?.close();
	stream = new EventSource('/v1/events');
	stream.onopen = () => {
		retryMs = 1000;
		clearInterval(pollTimer);
		pollTimer = 0;
		setLink('live');
		refresh().catch(() => {});
	};
	stream.onerror = () => {
		setLink('broken');
		if (!pollTimer) pollTimer = setInterval(() => refresh().catch(() => {}), POLL_MS);
		if (stream?.readyState === EventSource.CLOSED) {
			/* the browser gave up, so we do it */
			clearTimeout(retry);
			retry = setTimeout(connect, retryMs);
			retryMs = Math.min(retryMs * 2, 15000);
		}
	};
	for (const kind of ['message', 'event', ...KINDS]) stream.addEventListener(kind, (m) => took(m.data));
}

async function statsOf(id) {
	const s = await get(boxPath(id, '/stats'));
	const old = store.stats.get(id),
		now = performance.now();
	const t = {
		at: now,
		cpuUsec: s.cpu_usec ?? null,
		memory: s.memory ?? null,
		memoryLimit: s.memory_limit ?? null,
		disk: s.disk ?? null,
		pids: s.pids ?? null,
		netIn: s.net_in ?? null,
		netOut: s.net_out ?? null,
		cpu: old?.cpu ?? null,
		points: old?.points ?? []
	};
	if (old?.cpuUsec !== undefined && old.cpuUsec !== null && t.cpuUsec !== null && now > old.at) {
		t.cpu = Math.max(0, (t.cpuUsec - old.cpuUsec) / ((now - old.at) * 10));
		t.points = [...t.points, t.cpu].slice(-KEPT_POINTS);
	}
	store.stats.set(id, t);
	tell('stats', id);
}

/* Two looks that are too close to each other tell nothing. */
const due = (id) =>
	store.boxes.get(id)?.state === 'running' && !(performance.now() - store.stats.get(id)?.at < STATS_MS / 2);

let polling = false;
async function pollStats() {
	if (polling) return;
	polling = true;
	clearTimeout(statsTimer);
	if (!document.hidden) {
		const ids = [...store.wanted].filter(due).slice(0, STATS_AT_ONCE);
		const next = async () => {
			while (ids.length) await statsOf(ids.shift()).catch(() => {});
		};
		await Promise.all([next(), next(), next()]);
	}
	polling = false;
	if (store.link !== 'off') statsTimer = setTimeout(pollStats, STATS_MS);
}

export async function refreshUsage() {
	const u = await get('/v1/usage');
	store.prices = u.prices ?? null;
	store.currency = u.currency ?? u.prices?.currency ?? null;
	store.usage = new Map(listOf(u, 'usage', 'boxes', 'items').map((x) => [x.box ?? x.id, x]));
	tell('usage');
}

async function pollUsage() {
	clearTimeout(usageTimer);
	if (!document.hidden) await refreshUsage().catch(() => {});
	if (store.link !== 'off') usageTimer = setTimeout(pollUsage, USAGE_MS);
}

async function readKeys() {
	store.keyNames.set(store.who.key, store.who.name || store.who.key);
	if (store.who.admin) for (const k of await getAll('/v1/keys', 'keys')) store.keyNames.set(k.id, k.name || k.id);
	tell('boxes');
}

export function open() {
	readKeys().catch(() => {});
	setLink('waiting');
	connect();
	pollUsage();
	setTimeout(pollStats, 300);
}

export function close() {
	stream?.close();
	stream = null;
	for (const t of [pollTimer, statsTimer, usageTimer, retry, refreshTimer]) clearTimeout(t);
	pollTimer = refreshTimer = 0;
	setLink('off');
}

/* Looks at once: a row came into view. */
let wantTimer = 0;
export function want(id, yes) {
	if (yes) store.wanted.add(id);
	else store.wanted.delete(id);
	if (yes && !store.stats.has(id) && !wantTimer)
		wantTimer = setTimeout(() => {
			wantTimer = 0;
			if (store.link !== 'off') pollStats();
		}, 200);
}

/* A browser has six connections to a server for all its tabs: one that nobody looks at gives its back. */
document.addEventListener('visibilitychange', () => {
	clearTimeout(hiddenTimer);
	if (document.hidden && store.link !== 'off')
		hiddenTimer = setTimeout(() => {
			close();
			store.link = 'asleep';
		}, HIDDEN_MS);
	else if (!document.hidden && store.link === 'asleep') open();
});

export const boxName = (b) => b?.name || b?.id || '';
export const isUp = (b) => b.state === 'running' || b.state === 'paused';
export function sortBoxes(list) {
	return list.sort((a, b) => (ms(b.created) ?? 0) - (ms(a.created) ?? 0) || (a.id < b.id ? -1 : 1));
}
