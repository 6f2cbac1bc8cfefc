/*
 * The page as C: node embed.mjs SOURCE MODULES OUT.c
 *
 * Every asset is compressed here, once, and named below a version that is the hash of all of them: so a
 * browser may keep it for ever, and a new server's page never mixes with the old one's.
 */
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { constants, gzipSync } from 'node:zlib';

const TYPES = {
	html: 'text/html; charset=utf-8',
	css: 'text/css; charset=utf-8',
	js: 'text/javascript; charset=utf-8',
	svg: 'image/svg+xml'
};

const [source, modules, out] = process.argv.slice(2);
const files = new Map();
for (const name of readdirSync(source).sort())
	if (/\.(html|css|js|svg)$/.test(name)) files.set(name, readFileSync(join(source, name), 'utf8'));
const plain = (path) => readFileSync(join(modules, path), 'utf8').replace(/^\/\/# sourceMappingURL=.*$/m, '');
files.set('xterm.js', plain('@xterm/xterm/lib/xterm.mjs'));
files.set('xterm-fit.js', plain('@xterm/addon-fit/lib/addon-fit.mjs'));
files.set('xterm.css', plain('@xterm/xterm/css/xterm.css'));

const all = createHash('sha256');
for (const [name, text] of [...files].sort()) all.update(`${name}\0${text}\0`);
const version = all.digest('hex').slice(0, 12);

let text = '/* Made by ui/embed.mjs from ui/ and its npm packages. */\n#include "assets.h"\n\n';
text += `const char ui_version[] = "${version}";\nconst char *const ui_missing = 0;\n\n`;
let table = '',
	n = 0;
for (const [name, content] of files) {
	const body = Buffer.from(name === 'index.html' ? content.replaceAll('@BASE@', `/ui/${version}`) : content);
	const gz = gzipSync(body, { level: constants.Z_BEST_COMPRESSION });
	const etag = createHash('sha256').update(body).digest('hex').slice(0, 16);
	const bytes = [];
	for (let at = 0; at < gz.length; at += 24) bytes.push([...gz.subarray(at, at + 24)].join(','));
	text += `static const unsigned char d${n}[] = {\n${bytes.join(',\n')}\n};\n`;
	table += `\t{ "${name}", "${TYPES[name.split('.').pop()]}", "\\"${etag}\\"", d${n}, sizeof(d${n}), ${body.length} },\n`;
	n++;
}
text += `\nconst struct ui_asset ui_assets[] = {\n${table}};\nconst size_t ui_n_assets = ${n};\n`;
writeFileSync(`${out}.tmp`, text);
renameSync(`${out}.tmp`, out);
