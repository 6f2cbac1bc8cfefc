// What lives in a Node process: timers, promises that wait, an HTTP server with connections that are kept, a child.
const http = require('http');
const readline = require('readline');
const { spawn } = require('child_process');

let steps = 0, ticks = 0, hits = 0, total = 0;
const kept = new Map([['a', { deep: [1, 2, 3n] }], [Symbol.for('s'), new Date(0)]]);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const generator = (function* () { for (let i = 0; ; i++) yield i; })();
let taken = 0, sockets = 0;
let release;
let waiting = new Promise((r) => { release = r; });

setInterval(() => { ticks++; }, 20);
const server = http.createServer((req, res) => { hits++; res.end(String(hits)); });
server.on('connection', () => { sockets++; });
server.keepAliveTimeout = 0;
const child = spawn('sh', ['-c', 'n=0; while read x; do n=$((n + x)); echo $n; done'], { stdio: ['pipe', 'pipe', 'inherit'] });
const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();

function get() {
	return new Promise((resolve, reject) => {
		const req = http.get({ port: server.address().port, host: '127.0.0.1', agent }, (res) => {
			let text = '';
			res.on('data', (d) => { text += d; });
			res.on('end', () => resolve(Number(text)));
		});
		req.on('error', reject);
		req.setTimeout(20000, () => req.destroy(new Error('no answer')));
	});
}

const late = (ms) => new Promise((r) => { setTimeout(r, ms); });

async function check() {
	if (kept.get('a').deep[2] !== 3n || kept.get(Symbol.for('s')).getTime() !== 0) throw new Error('the map');
	if (generator.next().value !== taken++) throw new Error('the generator');
	const before = hits;
	if (await get() !== before + 1) throw new Error('the server');
	if (sockets !== 1) throw new Error(`the connection: it is the ${sockets}th`);
	total += 5;
	child.stdin.write('5\n');
	if (Number((await lines.next()).value) !== total) throw new Error('the child');
	setTimeout(() => release(taken), 5);
	if (await waiting !== taken) throw new Error('the promise');
	waiting = new Promise((r) => { release = r; });
	const was = ticks;
	for (let i = 0; i < 1000 && ticks === was; i++) await late(10);
	if (ticks === was) throw new Error('the timer');
}

server.listen(0, '127.0.0.1', async () => {
	await check();
	process.stdout.write('ready\n');
	for await (const word of readline.createInterface({ input: process.stdin })) {
		let answer = 'ok';
		if (word === 'step') steps++;
		else if (word === 'count') answer = `ok ${steps}`;
		else await check().catch((e) => { answer = `FAIL: ${e.message}`; });
		process.stdout.write(answer + '\n');
	}
	process.exit(0);
});
