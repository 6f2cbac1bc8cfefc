// Programs that outlive a pause, through E2B's own SDK, unmodified. One part a run: node e2b_memory.mjs PART
// What is on disk and what runs is looked at with den itself ($DEN).
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { Sandbox, SandboxNotFoundError, Template, waitForURL } from 'e2b'

const api = process.env.E2B_API_URL
const box = (sandbox) => 'b-' + (sandbox.sandboxId ?? sandbox).slice(1)
const sleep = (ms) => new Promise((ok) => setTimeout(ok, ms))
const MINUTE = 60_000

function inspect(sandbox) {
  const v = JSON.parse(execFileSync(process.env.DEN, ['inspect', '--json', box(sandbox)], { encoding: 'utf8', timeout: MINUTE }))
  return Array.isArray(v) ? v[0] : v
}

async function soon(what, fn, ms = 15000) {
  for (const end = Date.now() + ms * Number(process.env.DEN_TEST_SLOW ?? 1); Date.now() < end; await sleep(100))
    if (await fn()) return
  assert.fail(what)
}

// No process of the box, and nothing of it in memory.
async function onDisk(s) {
  await soon('it is on disk', async () => (await s.getInfo()).state === 'paused' && inspect(s).on_disk === true)
  const i = inspect(s)
  assert.equal(i.state, 'paused')
  assert.ok(!i.init_pid, `process 1 is ${i.init_pid}`)
}

// An interpreter with something in its memory alone. ask(sandbox, text): what it answers, line by line
class Repl {
  constructor(pid, mark) {
    this.pid = pid
    this.mark = mark
  }

  static async start(s, command, set, mark) {
    const h = await s.commands.run(command, { background: true, stdin: true, timeoutMs: 0 })
    const r = new Repl(h.pid, mark)
    await r.ask(s, set)
    return r
  }

  async ask(s, text) {
    let got = ''
    const h = await s.commands.connect(this.pid, { onStdout: (d) => (got += d), timeoutMs: 0 })
    const end = `end${Math.floor(Math.random() * 1e9)}`
    await s.commands.sendStdin(this.pid, `${text}\n${this.mark(end)}\n`)
    await soon(`an answer to ${text}: ${JSON.stringify(got)}`, () => got.includes(end))
    await h.disconnect()
    return got.slice(0, got.indexOf(end)).trim()
  }
}
const python = (s) => Repl.start(s, 'python3 -u -i -q 2>/dev/null', 'x = {"n": 41}', (end) => `print("${end[0]}" + "${end.slice(1)}")`)
const node = (s) =>
  Repl.start(s, 'node -i 2>/dev/null', 'globalThis.y = { n: 41 }; undefined', (end) => `console.log("${end[0]}" + "${end.slice(1)}")`)
const shell = (s) => Repl.start(s, '/bin/bash --norc', 'z=41', (end) => `echo "${end[0]}""${end.slice(1)}"`)

async function counter(s) {
  const h = await s.commands.run('i=0; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done', {
    background: true, timeoutMs: 0,
  })
  await soon('it counts', async () => (await count(s)) > 3)
  return h.pid
}
const count = async (s) => Number((await s.commands.run('cat /tmp/count 2>/dev/null || echo 0')).stdout)
const pids = async (s) => (await s.commands.list()).map((p) => p.pid).sort((a, b) => a - b)

const parts = {
  // A counter, a shell and interpreters go on where they were; nothing of the box is there meanwhile.
  async pause() {
    const s = await Sandbox.create({ timeoutMs: 5 * MINUTE })
    const c = await counter(s)
    const sh = await shell(s), py = await python(s)
    const js = (await s.commands.run('command -v node || true')).stdout ? await node(s) : null
    await s.commands.run('echo in a file of memory >/dev/shm/f; echo on disk >~/f')
    const before = await pids(s)
    for (let round = 1; round <= 2; round++) {
      const n = await count(s)
      assert.equal(await s.pause(), true)
      await onDisk(s)
      assert.equal(await s.pause(), false)
      await assert.rejects(s.commands.run('true'), SandboxNotFoundError) // nobody asked for autoResume
      assert.equal(await s.isRunning(), false)
      assert.ok(inspect(s).on_disk, 'it was woken')
      await sleep(500)
      await s.connect({ timeoutMs: 5 * MINUTE })
      assert.equal((await s.getInfo()).state, 'running')
      assert.equal(inspect(s).on_disk, false)
      const m = await count(s)
      assert.ok(m >= n && m < n + 100, `${n} became ${m}`)
      await soon('it counts on', async () => (await count(s)) > m)
      assert.deepEqual(await pids(s), before)
      assert.equal(await sh.ask(s, 'echo $((z + 1))'), '42')
      assert.equal(await py.ask(s, 'print(x["n"] + 1)'), '42')
      if (js) assert.match(await js.ask(s, 'console.log(y.n + 1)'), /42/)
      assert.equal((await s.commands.run('cat /dev/shm/f ~/f')).stdout, 'in a file of memory\non disk\n')
      assert.equal(inspect(s).restores, round)
    }
    assert.equal(await s.commands.kill(c), true)
    await s.pause()
    assert.equal(await s.kill(), true) // from disk
    assert.equal(await s.kill(), false)
  },

  // At its end it goes to disk, and whoever comes wakes it: a command, a file, a port.
  async wake() {
    const s = await Sandbox.create({ timeoutMs: 5 * MINUTE, lifecycle: { onTimeout: 'pause', autoResume: true } })
    assert.equal(inspect(s).on_expire, 'pause-disk')
    const py = await python(s)
    await s.commands.run('python3 -m http.server 8000 --directory /home/user >/dev/null 2>&1', { background: true, timeoutMs: 0 })
    await s.files.write('f', 'hello')
    const port = () => fetch(`${api}/f`, { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '8000' } })
    await soon('it serves', async () => (await port()).status === 200)
    const ways = {
      'a port': async () => assert.equal(await (await port()).text(), 'hello'),
      'a command': async () => assert.equal((await s.commands.run('cat f')).stdout, 'hello'),
      'a file': async () => assert.equal(await s.files.read('f'), 'hello'),
      'a list': async () => assert.ok((await s.files.list('.')).some((e) => e.name === 'f')),
      connect: async () => void (await Sandbox.connect(s.sandboxId)),
    }
    for (const [name, come] of Object.entries(ways)) {
      await s.setTimeout(500)
      await onDisk(s)
      await come()
      assert.equal((await s.getInfo()).state, 'running', name)
      assert.equal(await py.ask(s, 'print(x["n"])'), '41', name)
    }
    await s.kill()
  },

  // Each fork has the programs as they were; they go their own ways; the first goes on all the while.
  async fork() {
    const s = await Sandbox.create({ timeoutMs: 5 * MINUTE })
    const py = await python(s)
    await counter(s)
    const before = await pids(s), restores = inspect(s).restores
    const forks = (await s.fork({ count: 3, timeoutMs: MINUTE })).map((f) => f.sandbox ?? f)
    assert.equal(forks.length, 3)
    assert.deepEqual(await pids(s), before)
    assert.equal(inspect(s).restores, restores)
    for (const [i, f] of forks.entries()) {
      assert.ok(f.sandboxId && f.sandboxId !== s.sandboxId)
      assert.equal((await f.commands.run('hostname; echo $E2B_SANDBOX_ID')).stdout.split('\n')[1], f.sandboxId)
      assert.equal(await py.ask(f, `x["n"] += ${i + 1}; print(x["n"])`), String(42 + i))
    }
    for (const [i, f] of forks.entries()) {
      assert.equal(await py.ask(f, 'print(x["n"])'), String(42 + i))
      const n = await count(f)
      await soon('a fork counts', async () => (await count(f)) > n)
    }
    assert.equal(await py.ask(s, 'print(x["n"])'), '41')
    const n = await count(s)
    await soon('the first counts on', async () => (await count(s)) > n)
    // forks of forks, and of one that is on disk, which stays there
    const [again] = (await forks[0].fork({ timeoutMs: MINUTE })).map((f) => f.sandbox ?? f)
    assert.equal(await py.ask(again, 'print(x["n"])'), '42')
    await s.pause()
    const [late] = (await s.fork({ timeoutMs: MINUTE })).map((f) => f.sandbox ?? f)
    assert.equal(await py.ask(late, 'print(x["n"])'), '41')
    assert.equal((await s.getInfo()).state, 'paused')
    for (const f of [...forks, again, late]) assert.equal(await f.kill(), true)
    await s.connect()
    assert.equal(await py.ask(s, 'print(x["n"])'), '41')
    await s.kill()
  },

  // A template with a start command is kept with that running: sandboxes of it have the very same process.
  async template() {
    const serve =
      `python3 -c 'import http.server,os
t=os.urandom(8).hex().encode()
class H(http.server.BaseHTTPRequestHandler):
` +
      ` def do_GET(s):
  s.send_response(200); s.send_header("content-length","16"); s.end_headers(); s.wfile.write(t)
` +
      ` def log_message(s,*a): pass
http.server.HTTPServer(("127.0.0.1",8123),H).serve_forever()'`
    const ask = async (s) => (await s.commands.run('curl -sS -m 5 http://127.0.0.1:8123/')).stdout
    const lines = []
    const build = (name, opts) =>
      Template.build(Template().fromTemplate('base').runCmd('date > /home/user/made').setStartCmd(serve, waitForURL('http://127.0.0.1:8123/')), name, {
        ...opts,
        onBuildLogs: (l) => lines.push(l.message),
      })
    await build('served:default', { tags: ['v1'] })
    assert.ok(lines.some((l) => l.includes('kept with the start command running')), lines.join('\n'))
    const a = await Sandbox.create('served', { timeoutMs: 3 * MINUTE })
    const b = await Sandbox.create('served:v1', { timeoutMs: 3 * MINUTE })
    const token = await ask(a)
    assert.match(token, /^[0-9a-f]{16}$/)
    assert.equal(await ask(b), token, 'both began with the same memory')
    assert.equal((await a.commands.run('pgrep -fc "[H]TTPServer"')).stdout.trim(), '1', 'it was not started once more')
    assert.deepEqual((await Template.getTags('served')).map((t) => t.tag).sort(), ['default', 'v1'])
    // another organisation has the files, as ever, and never what was in memory
    const other = await Sandbox.create('served', { timeoutMs: MINUTE, apiKey: process.env.OTHER_KEY })
    assert.match(await ask(other), /^[0-9a-f]{16}$/)
    assert.notEqual(await ask(other), token)
    await other.kill()
    const plain = await fetch(`${api}/v1/boxes`, { method: 'POST', body: '{"template":"served"}',
      headers: { Authorization: `Bearer ${process.env.OTHER_KEY}`, 'Content-Type': 'application/json' } })
    assert.equal(plain.status, 201)
    const made = (await plain.json()).id
    assert.equal(execFileSync(process.env.DEN, ['exec', made, '--', 'sh', '-c', 'pgrep -fc "[H]TTPServer" || true'], { encoding: 'utf8', timeout: MINUTE }).trim(), '0')
    execFileSync(process.env.DEN, ['rm', '-f', made], { timeout: MINUTE })
    // without memory the command is started anew
    await a.pause({ keepMemory: false })
    await a.connect()
    await soon('it is started again', async () => /^[0-9a-f]{16}$/.test(await ask(a).catch(() => '')))
    assert.notEqual(await ask(a), token)
    await a.kill()
    await b.kill()
    // built again, with the same name: what is new has it
    await build('served')
    const c = await Sandbox.create('served', { timeoutMs: 3 * MINUTE })
    assert.notEqual(await ask(c), token)
    await c.kill()
    // and from it: files, as steps are for those
    await Template.build(Template().fromTemplate('served').runCmd('echo more > /home/user/more'), 'further')
    const d = await Sandbox.create('further', { timeoutMs: 3 * MINUTE })
    assert.equal((await d.commands.run('cat /home/user/more')).stdout, 'more\n')
    await d.kill()
    for (const name of ['served:v1', 'served', 'further']) execFileSync(process.env.DEN, ['template', 'rm', '--force', name], { timeout: MINUTE })
  },

  // A snapshot has the programs, too: boxes of it begin with them.
  async snapshot() {
    const s = await Sandbox.create({ timeoutMs: 5 * MINUTE })
    const py = await python(s)
    const snap = await s.createSnapshot()
    assert.equal(await py.ask(s, 'x["n"] = 0; print(x["n"])'), '0')
    await s.kill()
    for (let i = 0; i < 2; i++) {
      const t = await Sandbox.create(snap.snapshotId, { timeoutMs: MINUTE })
      assert.equal(await py.ask(t, 'print(x["n"])'), '41')
      assert.equal((await t.commands.run('id -un; pwd')).stdout, 'user\n/home/user\n')
      await t.kill()
    }
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
  },
}

const part = parts[process.argv[2]]
if (!part) throw new Error(`parts: ${Object.keys(parts).join(' ')}`)
await part()
console.log(`${process.argv[2]}: ok`)
process.exit(0)
