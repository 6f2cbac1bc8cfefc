/* Numbers and times in words, short enough for a table. */
export function bytes(n) {
	if (n === null || n === undefined || Number.isNaN(n)) return '–';
	if (n < 1024) return `${n} B`;
	let unit = -1;
	do {
		n /= 1024;
		unit++;
	} while (n >= 1000 && unit < 4);
	return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${'KMGTP'[unit]}iB`;
}

export function percent(x) {
	if (x === null || x === undefined) return '–';
	return `${x < 10 ? x.toFixed(1) : Math.round(x)}%`;
}

/* Times come as RFC 3339, or as milliseconds. */
export function ms(t) {
	if (t === null || t === undefined || t === 0 || t === '') return null;
	const n = typeof t === 'number' ? t : Date.parse(t);
	return Number.isNaN(n) ? null : n;
}

export function span(d) {
	const s = Math.max(0, Math.round(d / 1000));
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min`;
	if (s < 86400) {
		const m = Math.floor((s % 3600) / 60);
		return m && s < 36000 ? `${Math.floor(s / 3600)} h ${m} min` : `${Math.floor(s / 3600)} h`;
	}
	return `${Math.floor(s / 86400)} d`;
}

/* One unit: for tables. */
export function rough(t) {
	const n = ms(t);
	return n === null ? '–' : span(Date.now() - n).replace(/ (h) .*/, ' $1');
}

export function ago(t) {
	const n = ms(t);
	return n === null ? '–' : span(Date.now() - n);
}

export function until(t) {
	const n = ms(t);
	if (n === null) return 'never';
	return n <= Date.now() ? 'now' : `in ${span(n - Date.now())}`;
}

const clock = new Intl.DateTimeFormat(undefined, {
	hour: '2-digit',
	minute: '2-digit',
	second: '2-digit',
	hour12: false
});
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
export function time(t) {
	const n = ms(t);
	if (n === null) return '–';
	return Date.now() - n < 86400000 && new Date(n).getDate() === new Date().getDate()
		? clock.format(n)
		: day.format(n);
}
export function full(t) {
	const n = ms(t);
	return n === null ? '' : day.format(n);
}

export function money(n, currency) {
	if (n === null || n === undefined) return '–';
	const digits = n !== 0 && Math.abs(n) < 1 ? 4 : 2;
	try {
		return new Intl.NumberFormat(undefined, {
			style: 'currency',
			currency: currency || 'USD',
			minimumFractionDigits: digits,
			maximumFractionDigits: digits
		}).format(n);
	} catch {
		return `${n.toFixed(digits)} ${currency}`;
	}
}

export function argv(list) {
	return (list ?? []).map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", "'\\''")}'`)).join(' ');
}
