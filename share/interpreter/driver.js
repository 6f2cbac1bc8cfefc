// One JavaScript context: reads cells from one descriptor, writes what they print and give
// to another, one JSON object a line. V8's own console mode evaluates them, so that top-level await
// works and a name may be declared again in a later cell. SIGINT ends the cell and nothing else.
'use strict';
const fs = require('fs');
const inspector = require('inspector');
const module_ = require('module');
const net = require('net');
const path = require('path');
const { pathToFileURL } = require('url');
const util = require('util');
const vm = require('vm');

const [CELLS, REPLIES] = process.argv.slice(2).map(Number);
process.argv.length = 1;
const HOOK = Symbol('den');
const session = new inspector.Session();
session.connect();
let cell = null; // the one that runs: { reject }
let count = 0;

// Synchronous, so that a cell that never gives the loop a turn is heard, and slowed by a slow reader.
function say(message) {
	let data = Buffer.from(JSON.stringify(message) + '\n');
	while (data.length)
		data = data.subarray(fs.writeSync(REPLIES, data));
}

function stream_to(type) {
	return function (chunk, encoding, done) {
		if (typeof encoding === 'function')
			done = encoding;
		const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8');
		say({ type, text });
		if (done)
			process.nextTick(done);
		return true;
	};
}
process.stdout.write = stream_to('stdout');
process.stderr.write = stream_to('stderr');

function bundle_of(value) {
	const own = value !== null && (typeof value === 'object' || typeof value === 'function') &&
		value[Symbol.for('Jupyter.display')];
	if (typeof own === 'function')
		return own.call(value);
	return { 'text/plain': util.inspect(value, { maxArrayLength: 200, maxStringLength: 1 << 20 }) };
}

async function show(value, main) {
	const data = await bundle_of(value);
	if (data && typeof data === 'object')
		say({ type: 'result', main, data });
}

// What a person wrote in the frames above ours.
function stack_of(error) {
	const lines = String(error.stack || error).split('\n');
	const end = lines.findIndex((l) => l.includes('(node:inspector:'));
	return (end < 0 ? lines : lines.slice(0, end)).join('\n');
}

function fail(error) {
	if (error instanceof Error || (error && typeof error === 'object' && 'stack' in error))
		say({ type: 'error', name: String(error.name || 'Error'),
			value: String(error.message), traceback: stack_of(error) });
	else
		say({ type: 'error', name: 'Error', value: util.inspect(error), traceback: util.inspect(error) });
}

function post(method, params) {
	return new Promise((resolve, reject) =>
		session.post(method, params, (e, r) => (e ? reject(e) : resolve(r))));
}

// A handle that V8 gave becomes the value itself.
async function value_of(remote) {
	let got;
	globalThis[HOOK] = (v) => { got = v; };
	const { result } = await post('Runtime.evaluate', { expression: 'globalThis' });
	await post('Runtime.callFunctionOn', {
		functionDeclaration: `function (v) {
			const s = Object.getOwnPropertySymbols(this).find((x) => x.description === 'den');
			this[s](v);
		}`,
		objectId: result.objectId,
		arguments: [remote.objectId ? { objectId: remote.objectId }
			: remote.unserializableValue ? { unserializableValue: remote.unserializableValue }
				: { value: remote.value }],
	});
	delete globalThis[HOOK];
	return got;
}

function evaluate(expression) {
	return new Promise((resolve, reject) => {
		cell = { reject };
		globalThis[HOOK] = () => session.post('Runtime.evaluate',
			{ expression, replMode: true, awaitPromise: true },
			(e, r) => (e ? reject(e) : resolve(r)));
		try {
			// only a script can be stopped in the middle
			run_hook.runInThisContext({ breakOnSigint: true });
		} catch (e) {
			reject(e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? interrupted() : e);
		}
	});
}
const run_hook = new vm.Script(
	`globalThis[Object.getOwnPropertySymbols(globalThis).find((x) => x.description === 'den')]()`,
	{ filename: 'node:inspector:den' });

function interrupted() {
	const e = new Error('the execution was interrupted');
	e.name = 'Interrupted';
	e.stack = 'Interrupted: the execution was interrupted';
	return e;
}
process.on('SIGINT', () => {
	if (cell)
		cell.reject(interrupted());
});

// ---- modules: cells are no modules, so their imports become calls ------------------------------

const require_here = () => module_.createRequire(path.join(process.cwd(), 'cell.js'));
Object.defineProperty(globalThis, 'require', { get: require_here, configurable: true });
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
globalThis.__import = async (name) => {
	name = String(name);
	if (module_.isBuiltin(name) || /^(node|data|file):/.test(name))
		return import(name);
	if (name.startsWith('.') || name.startsWith('/'))
		return import(pathToFileURL(path.resolve(name)));
	return import(pathToFileURL(require_here().resolve(name)));
};
Object.defineProperty(globalThis, '__import', { enumerable: false });
globalThis.display = (value) => show(value, false);

const IMPORT = /(?<=^|;)[ \t]*import\s+(?:([\w$*{][^'"();]*?)\s+from\s+)?(['"])([^'"\n]+)\2[ \t]*;?/gm;

function import_to_call(all, names, _quote, from) {
	const call = `await __import(${JSON.stringify(from)});`;
	if (!names)
		return call;
	const [, first, rest] = /^([\w$]+)?\s*,?\s*([^]*)$/.exec(names.trim());
	let out = '';
	if (first)
		out += `const { default: ${first} } = ${call}`;
	if (rest.startsWith('*'))
		out += `const ${rest.replace(/^\*\s*as\s+/, '')} = ${call}`;
	else if (rest)
		out += `const ${rest.replace(/\bas\b/g, ':')} = ${call}`;
	return out;
}

function imports_rewrite(code) {
	return code.replace(IMPORT, import_to_call)
		.replace(/(?<![.\w$'"`])import(?=\s*\()/g, '__import');
}

// ---- TypeScript --------------------------------------------------------------------------------

let transpile = null;
function transpiler_find() {
	if (transpile)
		return;
	const places = ['/usr/share/nodejs', '/usr/lib/node_modules', '/usr/local/lib/node_modules'];
	for (const name of ['typescript', ...places.map((p) => path.join(p, 'typescript'))]) {
		try {
			const ts = require_here()(name);
			transpile = (code) => ts.transpileModule(code, { compilerOptions: {
				target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext,
				importsNotUsedAsValues: 1, verbatimModuleSyntax: true } }).outputText;
			return;
		} catch { /* the next */ }
	}
	if (module_.stripTypeScriptTypes) {
		process.removeAllListeners('warning');
		transpile = (code) => module_.stripTypeScriptTypes(code);
		return;
	}
	const e = new Error('typescript: this template has no transpiler; ' +
		"'den template builtin code-interpreter --with typescript' makes one that has, or " +
		'npm install typescript in the working directory');
	e.name = 'LanguageNotAvailable';
	e.stack = `${e.name}: ${e.message}`;
	throw e;
}

// ---- cells -------------------------------------------------------------------------------------

async function run(request) {
	const before = {};
	for (const [k, v] of Object.entries(request.env || {})) {
		before[k] = process.env[k];
		process.env[k] = v;
	}
	say({ type: 'count', count: ++count });
	try {
		let code = request.code;
		if (request.typescript) {
			transpiler_find();
			code = transpile(code);
		}
		const got = await evaluate(imports_rewrite(code));
		cell = null;
		const value = await value_of(got.exceptionDetails ? got.exceptionDetails.exception : got.result);
		if (got.exceptionDetails)
			fail(value);
		else if (value !== undefined)
			await show(value, true);
		session.post('Runtime.discardConsoleEntries');
	} catch (e) {
		fail(e);
	}
	cell = null;
	for (const [k, v] of Object.entries(before)) {
		if (v === undefined)
			delete process.env[k];
		else
			process.env[k] = v;
	}
	say({ type: 'done' });
}

// A background task that fails is told, and does not take the context along.
process.on('uncaughtException', (e) => say({ type: 'stderr', text: `Uncaught ${stack_of(e)}\n` }));
process.on('unhandledRejection', (e) =>
	say({ type: 'stderr', text: `Uncaught (in promise) ${e instanceof Error ? stack_of(e) : util.inspect(e)}\n` }));

let rest = '';
const input = new net.Socket({ fd: CELLS, readable: true, writable: false });
input.setEncoding('utf8');
input.on('data', (text) => {
	rest += text;
	for (let at = rest.indexOf('\n'); at >= 0; at = rest.indexOf('\n')) {
		const line = rest.slice(0, at);
		rest = rest.slice(at + 1);
		run(JSON.parse(line));
	}
});
input.on('end', () => process.exit(0));
say({ type: 'ready' });
