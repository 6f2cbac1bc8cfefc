// E2B's control plane through its own SDK, unmodified. One part a run: node e2b_control.mjs PART
// What happens in a box is looked at with den itself ($DEN), so that this half is tested alone.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, mkdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  Sandbox, Template, Secret, Volume, AuthenticationError, RateLimitError, SandboxNotFoundError, SandboxError,
  BuildError, VolumeError, VolumeNotFoundError, VolumePathNotFoundError, waitForFile, ALL_TRAFFIC,
} from 'e2b'
import { Sandbox as OldSandbox } from 'e2b-old'

const api = process.env.E2B_API_URL
const box = (sandbox) => 'b-' + (sandbox.sandboxId ?? sandbox).slice(1)
const sleep = (ms) => new Promise((ok) => setTimeout(ok, ms))

function den(...args) {
  return execFileSync(process.env.DEN, args, { encoding: 'utf8', timeout: 60000, stdio: ['ignore', 'pipe', 'pipe'] })
}
const inside = (sandbox, command, ...options) => den('exec', ...options, box(sandbox), '--', '/bin/bash', '-c', command)

function fails(sandbox, command) {
  try {
    inside(sandbox, command)
  } catch {
    return true
  }
  return false
}

async function soon(what, fn, ms = 15000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(100)) if (await fn()) return
  assert.fail(what)
}

async function raw(method, path, body, headers = {}) {
  const res = await fetch(api + path, {
    method,
    headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json', ...headers },
    body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
  })
  const text = await res.text()
  return { status: res.status, headers: res.headers, text, json: text && text[0] !== '<' ? JSON.parse(text) : undefined }
}

const ready = () => JSON.parse(den('pool', '--json')).ready.map((r) => r.id)

const parts = {
  async ready() {
    await soon('two ready boxes', () => ready().length === 2)
    let had = ready()
    const made = await Promise.all([1, 2].map((n) => Sandbox.create({ timeoutMs: 60_000, metadata: { n: `${n}` }, envs: { N: `${n}` } })))
    assert.deepEqual(made.map(box).sort(), had.sort())
    for (const [i, s] of made.entries()) {
      assert.equal(inside(s, 'echo $N $E2B_TEMPLATE_ID; id -un'), `${i + 1} base\nuser\n`)
      const info = await s.getInfo()
      assert.deepEqual(info.metadata, { n: `${i + 1}` })
      assert.ok(Math.abs(Date.now() - info.startedAt) < 30_000)
      assert.equal((await s.commands.run('echo $N')).stdout, `${i + 1}\n`)
    }
    assert.equal(new Set(made.map((s) => inside(s, 'cat /etc/machine-id /proc/sys/kernel/random/boot_id'))).size, 2)
    await soon('two more', () => ready().length === 2, 30_000)
    // another policy, given when it is taken
    had = ready()
    const alone = await Sandbox.create({ timeoutMs: 60_000, network: { allowOut: ['one.example'], denyOut: [ALL_TRAFFIC] } })
    assert.ok(had.includes(box(alone)))
    assert.match(den('policy', 'show', box(alone)), /one\.example/)
    assert.doesNotMatch(den('policy', 'show', box(made[0])), /one\.example/)
    assert.ok(fails(alone, 'getent hosts two.example'))
    assert.match(den('denials', box(alone)), /two\.example/)
    assert.deepEqual((await Sandbox.list().nextItems()).map(box).sort(), [...made, alone].map(box).sort())
    // a key with a quota: its boxes have other limits, and the server learns that these are wanted
    const key = { apiKey: process.env.FEW_KEY }
    for (let i = 0; i < 12; i++) await (await Sandbox.create({ timeoutMs: 60_000, ...key })).kill()
    let taken = 0
    await soon('one of the other shape', async () => {
      had = ready()
      const s = await Sandbox.create({ timeoutMs: 60_000, ...key })
      taken += had.includes(box(s))
      await s.kill()
      await sleep(1000)
      return taken
    }, 40_000)
    for (const s of [...made, alone]) await s.kill()
    await parts.life()
  },
  async life() {
    const s = await Sandbox.create({ timeoutMs: 60_000, metadata: { who: 'ann', 'what for': 'a=b & c' }, envs: { GREETING: 'hello there' } })
    assert.match(s.sandboxId, /^i[a-z2-7]{18}$/)
    assert.equal(inside(s, 'echo $GREETING $E2B_SANDBOX $E2B_TEMPLATE_ID'), 'hello there true base\n')
    assert.equal(inside(s, 'id -un; pwd'), 'user\n/home/user\n')
    const info = await s.getInfo()
    assert.equal(info.sandboxId, s.sandboxId)
    assert.equal(info.templateId, 'base')
    assert.deepEqual(info.metadata, { who: 'ann', 'what for': 'a=b & c' })
    assert.equal(info.state, 'running')
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 64)
    assert.equal(info.envdVersion, '0.6.13')
    const left = info.endAt - Date.now()
    assert.ok(left > 50_000 && left <= 60_000, `ends in ${left} ms`)
    assert.ok(Math.abs(info.startedAt - Date.now()) < 20_000)
    assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })

    const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 5000 })
    assert.equal(again.sandboxId, s.sandboxId)
    // connecting never shortens
    assert.ok((await s.getInfo()).endAt - Date.now() > 45_000)
    await Sandbox.connect(s.sandboxId, { timeoutMs: 600_000 })
    assert.ok((await s.getInfo()).endAt - Date.now() > 590_000)
    // setTimeout does
    await s.setTimeout(20_000)
    assert.ok((await s.getInfo()).endAt - Date.now() <= 20_000)

    assert.equal(await s.kill(), true)
    assert.equal(await s.kill(), false)
    assert.equal(await Sandbox.kill('i' + 'a'.repeat(18)), false)
    assert.equal(await Sandbox.kill('not an id'), false)
    await assert.rejects(Sandbox.getInfo(s.sandboxId), SandboxNotFoundError)
    await assert.rejects(Sandbox.connect(s.sandboxId), SandboxNotFoundError)
    await assert.rejects(Sandbox.setTimeout(s.sandboxId, 1000), SandboxNotFoundError)
    await assert.rejects(Sandbox.pause(s.sandboxId), SandboxNotFoundError)
  },

  // What older SDKs say: /sandboxes, /sandboxes/ID/connect, and what nobody's SDK says any more
  async old() {
    const s = await OldSandbox.create({ timeoutMs: 60_000, metadata: { from: 'old' } })
    const page = await OldSandbox.list({ query: { metadata: { from: 'old' } } }).nextItems()
    assert.deepEqual(page.map((x) => x.sandboxId), [s.sandboxId])
    assert.equal((await OldSandbox.getInfo(s.sandboxId)).templateId, 'base')
    const all = await raw('GET', '/sandboxes?metadata=from%3Dold')
    assert.deepEqual(all.json.map((x) => x.sandboxID), [s.sandboxId])
    assert.equal((await raw('POST', `/sandboxes/${s.sandboxId}/refreshes`, { duration: 3600 })).status, 204)
    assert.ok((await OldSandbox.getInfo(s.sandboxId)).endAt - Date.now() > 3_500_000)
    assert.equal((await raw('POST', `/sandboxes/${s.sandboxId}/resume`, { timeout: 10 })).status, 201)
    assert.equal(await s.kill(), true)
    // what is not said: 15 seconds
    const made = await raw('POST', '/sandboxes', { templateID: 'base' })
    assert.equal(made.status, 201)
    assert.ok(made.json.envdAccessToken)
    assert.ok((await Sandbox.getInfo(made.json.sandboxID)).endAt - Date.now() <= 15_000)
    await Sandbox.kill(made.json.sandboxID)
  },

  async list() {
    const made = []
    for (let i = 0; i < 5; i++) made.push(await Sandbox.create({ metadata: { set: 'five', n: `${i} %&=+ö` } }))
    const ids = made.map((s) => s.sandboxId)
    const listed = async (opts) => {
      const pages = []
      for (const p = Sandbox.list(opts); p.hasNext; ) pages.push((await p.nextItems()).map((s) => s.sandboxId))
      return pages
    }
    const five = { query: { metadata: { set: 'five' } } }
    assert.deepEqual(await listed(five), [[...ids].reverse()])
    assert.deepEqual(await listed({ ...five, order: 'asc' }), [ids])
    assert.deepEqual(await listed({ ...five, limit: 2 }), [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]])
    assert.deepEqual(await listed({ ...five, limit: 5 }), [[...ids].reverse()])
    assert.deepEqual(await listed({ query: { metadata: { set: 'five', n: '3 %&=+ö' } } }), [[ids[3]]])
    assert.deepEqual(await listed({ query: { metadata: { set: 'fiv' } } }), [[]])
    await made[1].pause()
    assert.deepEqual(await listed({ query: { metadata: { set: 'five' }, state: ['paused'] } }), [[ids[1]]])
    assert.deepEqual(await listed({ query: { metadata: { set: 'five' }, state: ['running'] }, order: 'asc' }), [ids.filter((x) => x !== ids[1])])
    assert.deepEqual(await listed({ query: { metadata: { set: 'five' }, template: 'base', startedAfter: new Date(Date.now() - 60000) } }), [[...ids].reverse()])
    assert.deepEqual(await listed({ query: { metadata: { set: 'five' }, template: 'nope' } }), [[]])
    assert.deepEqual(await listed({ query: { metadata: { set: 'five' }, startedAfter: new Date(Date.now() + 60000) } }), [[]])
    assert.ok(Number((await raw('GET', '/v2/sandboxes')).headers.get('x-total-running')) >= 4)
    for (const q of ['limit=x', 'limit=101', 'state=asleep', 'order=up', 'nextToken=zz', 'startedAfter=noon'])
      assert.equal((await raw('GET', `/v2/sandboxes?${q}`)).status, 400, q)
    assert.deepEqual(await Promise.all(made.map((s) => s.kill())), [true, true, true, true, true])
    assert.deepEqual(await listed(five), [[]])
  },

  async expiry() {
    const dies = await Sandbox.create({ timeoutMs: 2000 })
    const sleeps = await Sandbox.create({ timeoutMs: 2000, lifecycle: { onTimeout: 'pause' } })
    const stops = await Sandbox.create({ timeoutMs: 2000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
    inside(sleeps, 'echo mine > /tmp/f; sleep 1000 & disown')
    inside(stops, 'echo disk > ~/f')
    await soon('a box goes at its end', async () => (await Sandbox.kill(dies.sandboxId)) === false || fails(dies, 'true'), 8000)
    await assert.rejects(Sandbox.getInfo(dies.sandboxId), SandboxNotFoundError)
    for (const s of [sleeps, stops])
      await soon('a box is paused at its end', async () => (await s.getInfo()).state === 'paused', 8000)
    assert.deepEqual((await sleeps.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    await Sandbox.connect(sleeps.sandboxId, { timeoutMs: 60_000 })
    assert.equal((await sleeps.getInfo()).state, 'running')
    assert.equal(inside(sleeps, 'cat /tmp/f; pgrep -c sleep'), 'mine\n1\n')
    await Sandbox.connect(stops.sandboxId, { timeoutMs: 60_000 })
    assert.equal(inside(stops, 'cat ~/f'), 'disk\n')
    for (const s of [sleeps, stops]) assert.equal(await s.kill(), true)
  },

  async pause() {
    const s = await Sandbox.create({ timeoutMs: 60_000 })
    inside(s, 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done', '-d')
    await soon('it counts', () => !fails(s, '[ "$(cat /tmp/count)" -gt 3 ]'))
    assert.equal(await s.pause(), true)
    assert.equal((await s.getInfo()).state, 'paused')
    assert.equal(await s.pause(), false)
    await sleep(300)
    const res = await raw('POST', `/v2/sandboxes/${s.sandboxId}/connect`, { timeout: 60 })
    assert.equal(res.status, 201)
    assert.equal((await raw('POST', `/v2/sandboxes/${s.sandboxId}/connect`)).status, 200)
    const before = Number(inside(s, 'cat /tmp/count'))
    await soon('the same process goes on', () => Number(inside(s, 'cat /tmp/count')) > before)
    assert.equal(inside(s, 'pgrep -fc "while :"').trim() >= 1, true)
    // without memory: files alone
    inside(s, 'echo kept > ~/kept')
    assert.equal(await s.pause({ keepMemory: false }), true)
    assert.equal((await s.getInfo()).state, 'paused')
    await s.connect({ timeoutMs: 60_000 })
    assert.equal(inside(s, 'cat ~/kept'), 'kept\n')
    assert.ok(fails(s, 'pgrep -f "i=$((i+1))"'))
    // with memory, but asked to begin anew
    inside(s, 'sleep 1000 & disown')
    await s.pause()
    await s.connect({ onResume: 'reboot' })
    assert.ok(fails(s, 'pgrep sleep'))
    // a paused one can be killed
    await s.pause()
    assert.equal(await s.kill(), true)
    assert.equal(await s.kill(), false)
  },

  // who comes to a paused sandbox wakes it, if it was made so
  async wake() {
    const s = await Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
    inside(s, 'sleep 1000 & disown')
    await s.setTimeout(1000)
    await soon('it is paused', async () => (await s.getInfo()).state === 'paused')
    assert.equal((await s.commands.run('pgrep -c sleep; echo $E2B_SANDBOX_ID')).stdout, `1\n${s.sandboxId}\n`)
    const info = await s.getInfo()
    assert.deepEqual([info.state, info.lifecycle.autoResume], ['running', true])
    assert.ok(info.endAt - Date.now() > 50_000)
    // not without memory, and not when nobody asked for it
    await s.pause({ keepMemory: false })
    assert.equal(await s.isRunning(), false)
    const t = await Sandbox.create({ timeoutMs: 60_000 })
    await t.pause()
    await assert.rejects(t.commands.run('true'), SandboxNotFoundError)
    assert.equal((await t.getInfo()).state, 'paused')
    await s.kill()
    await t.kill()
  },

  async metrics() {
    const s = await Sandbox.create({ timeoutMs: 60_000 })
    inside(s, 'for i in $(seq 200000); do :; done')
    await soon('there is a sample', async () => (await s.getMetrics()).length > 0)
    const m = (await s.getMetrics()).at(-1)
    assert.ok(m.cpuCount >= 1 && m.memTotal > 0 && m.diskTotal > 0 && m.memUsed > 0, JSON.stringify(m))
    assert.ok(Math.abs(m.timestamp - Date.now()) < 60_000)
    assert.deepEqual(await s.getMetrics({ start: new Date(Date.now() + 3600_000) }), [])
    await s.kill()
    await assert.rejects(Sandbox.getMetrics(s.sandboxId), SandboxNotFoundError)
  },

  async snapshots() {
    const s = await Sandbox.create({ timeoutMs: 60_000, envs: { KEPT: 'yes' } })
    inside(s, 'echo one > ~/state')
    const one = await s.createSnapshot()
    inside(s, 'echo two > ~/state')
    const two = await s.createSnapshot({ name: 'my-snap' })
    assert.deepEqual(two.names, [two.snapshotId])
    assert.equal(two.snapshotId, 'my-snap:default')
    const mine = []
    for (const p = Sandbox.listSnapshots({ sandboxId: s.sandboxId, limit: 1 }); p.hasNext; ) mine.push(...(await p.nextItems()))
    assert.deepEqual(mine.map((x) => x.snapshotId), [two.snapshotId, one.snapshotId])
    assert.deepEqual((await Sandbox.listSnapshots({ name: 'my-snap' }).nextItems()).map((x) => x.snapshotId), [two.snapshotId])
    await s.kill()
    // it outlives the box it is of
    const a = await Sandbox.create(one.snapshotId, { timeoutMs: 60_000 })
    const b = await Sandbox.create('my-snap', { timeoutMs: 60_000 })
    assert.equal(inside(a, 'cat ~/state; echo $KEPT'), 'one\nyes\n')
    assert.equal(inside(b, 'cat ~/state; id -un'), 'two\nuser\n')
    assert.equal((await b.getInfo()).templateId, 'my-snap')
    await a.kill()
    await b.kill()
    assert.equal(await Sandbox.deleteSnapshot(one.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(one.snapshotId), false)
    assert.equal(await Sandbox.deleteSnapshot(two.snapshotId), true)
    assert.deepEqual(await Sandbox.listSnapshots({ sandboxId: s.sandboxId }).nextItems(), [])
    await assert.rejects(Sandbox.create('my-snap'), /not found/)
    await assert.rejects(Sandbox.createSnapshot(s.sandboxId), SandboxNotFoundError)
  },

  async fork() {
    const s = await Sandbox.create({ timeoutMs: 120_000, metadata: { of: 'fork' } })
    inside(s, 'echo common > ~/f')
    const forks = await s.fork({ count: 3, timeoutMs: 60_000 })
    assert.equal(forks.length, 3)
    for (const [i, f] of forks.entries()) {
      const x = f.sandbox ?? f
      assert.ok(x.sandboxId && x.sandboxId !== s.sandboxId)
      assert.equal(inside(x, `cat ~/f; echo ${i} >> ~/f`), 'common\n')
    }
    for (const [i, f] of forks.entries()) assert.equal(inside(f.sandbox ?? f, 'cat ~/f'), `common\n${i}\n`)
    assert.equal(inside(s, 'cat ~/f'), 'common\n')
    const info = await Sandbox.getInfo((forks[0].sandbox ?? forks[0]).sandboxId)
    assert.deepEqual(info.metadata, { of: 'fork' })
    const left = info.endAt - Date.now()
    assert.ok(left > 40_000 && left <= 60_000, `ends in ${left} ms`)
    for (const f of forks) assert.equal(await Sandbox.kill((f.sandbox ?? f).sandboxId), true)
    assert.equal((await raw('POST', `/sandboxes/${s.sandboxId}/fork`, { count: 101 })).status, 400)
    // a paused one can be forked, and stays paused
    await s.pause()
    const [late] = await s.fork()
    assert.equal(inside(late, 'cat ~/f'), 'common\n')
    assert.equal((await s.getInfo()).state, 'paused')
    await late.kill()
    await s.kill()
    assert.equal((await raw('POST', `/sandboxes/${s.sandboxId}/fork`, {})).status, 404)
  },

  // PUB and PUB2 are two servers that answer "served HOST /"
  async network() {
    const { PUB, PUB2 } = process.env
    const get = (s, ip) => {
      try {
        return inside(s, `curl -sS -m 5 http://${ip}/`).trim() === `served ${ip} /`
      } catch {
        return false
      }
    }
    const open = await Sandbox.create({ timeoutMs: 120_000 })
    assert.deepEqual([get(open, PUB), get(open, PUB2), get(open, '10.9.8.7')], [true, true, false])
    const shut = await Sandbox.create({ timeoutMs: 120_000, allowInternetAccess: false })
    assert.deepEqual([get(shut, PUB), get(shut, PUB2)], [false, false])
    assert.equal((await shut.getInfo()).allowInternetAccess, false)
    const one = await Sandbox.create({ timeoutMs: 120_000, network: { denyOut: [ALL_TRAFFIC], allowOut: [PUB] } })
    assert.deepEqual([get(one, PUB), get(one, PUB2)], [true, false])
    assert.deepEqual((await one.getInfo()).network.allowOut, [PUB])
    // there an allowed address wins over a denied range
    const hole = await Sandbox.create({ timeoutMs: 120_000, network: { denyOut: ['192.175.48.0/24'], allowOut: [PUB2 + '/32'] } })
    assert.deepEqual([get(hole, PUB), get(hole, PUB2)], [false, true])

    await open.updateNetwork({ denyOut: [PUB2] })
    assert.deepEqual([get(open, PUB), get(open, PUB2)], [true, false])
    await open.updateNetwork({ allowInternetAccess: false })
    assert.deepEqual([get(open, PUB), get(open, PUB2)], [false, false])
    await open.updateNetwork({})
    assert.deepEqual([get(open, PUB), get(open, PUB2)], [true, true])
    await shut.updateNetwork({ allowOut: [PUB2], denyOut: [ALL_TRAFFIC] })
    assert.deepEqual([get(shut, PUB), get(shut, PUB2)], [false, true])

    const no = async (network, why) => assert.rejects(open.updateNetwork(network), (e) => e instanceof SandboxError && why.test(e.message), JSON.stringify(network))
    await no({ allowOut: ['example.com'] }, /400.*ALL_TRAFFIC/)
    await no({ allowOut: ['nonsense'], denyOut: [ALL_TRAFFIC] }, /400.*nonsense/)
    await no({ allowOut: ['host.den'], denyOut: [ALL_TRAFFIC] }, /400/)
    await no({ allowOut: ['10.9.8.7'], denyOut: [ALL_TRAFFIC] }, /40[03]/)
    await no({ allowOut: ['127.0.0.1'], denyOut: [ALL_TRAFFIC] }, /40[03]/)
    await no({ denyOut: ['example.com'] }, /400.*denyOut/)
    await no({ egressProxy: { address: 'p.example.com:1080' } }, /400.*egressProxy/)
    await no({ rules: { 'a.example.com': [{ transform: { headers: { 'X-Key': Secret.fill('k') } } }] } }, /400.*rules/)
    assert.deepEqual([get(open, PUB), get(open, PUB2)], [true, true]) // and nothing changed
    for (const s of [open, shut, one, hole]) await s.kill()
    await assert.rejects(Sandbox.updateNetwork(open.sandboxId, {}), SandboxNotFoundError)
    await assert.rejects(Sandbox.create({ network: { maskRequestHost: 'x' } }), /400.*maskRequestHost/)
    const priv = await Sandbox.create({ network: { allowPublicTraffic: false } })
    assert.match(priv.trafficAccessToken, /^[0-9a-f]{40}$/)
    assert.equal((await priv.getInfo()).network.allowPublicTraffic, false)
    await priv.updateNetwork({ denyOut: [PUB] })
    assert.equal((await priv.getInfo()).network.allowPublicTraffic, false)
    await priv.kill()
  },

  async secrets() {
    const a = await Secret.create('first-key', 's3cret-value', { metadata: { team: 'x' } })
    assert.equal(a.version, 1)
    assert.deepEqual(a.metadata, { team: 'x' })
    await assert.rejects(Secret.create('first-key', 'again-and-again'), /already exists/)
    const b = await Secret.update('first-key', 'other-value')
    assert.equal(b.version, 2)
    assert.deepEqual(b.metadata, { team: 'x' })
    assert.ok(b.updatedAt >= a.updatedAt)
    assert.equal((await Secret.getInfo(a.secretId)).name, 'first-key')
    assert.equal(await Secret.exists('second'), false)
    for (const n of ['second', 'third']) await Secret.create(n, 'a value of it')
    const names = []
    for (const p = Secret.list({ limit: 2 }); p.hasNext; ) names.push(...(await p.nextItems()).map((s) => s.name))
    assert.deepEqual(names, ['first-key', 'second', 'third'])
    const told = (await raw('GET', '/secrets')).text
    assert.ok(!told.includes('s3cret') && !told.includes('other-value'))
    for (const n of names) assert.equal(await Secret.destroy(n), true)
    assert.equal(await Secret.destroy('second'), false)
    await assert.rejects(Secret.update('second', 'another one'), /not found/)
    await assert.rejects(Secret.create('9 no name', 'a value of it'), /400/)
  },

  async template() {
    const dir = mkdtempSync(join(tmpdir(), 'ctx-'))
    mkdirSync(join(dir, 'app', 'sub'), { recursive: true })
    writeFileSync(join(dir, 'app', 'main.sh'), '#!/bin/bash\necho up > /tmp/up; exec sleep 1000\n')
    writeFileSync(join(dir, 'app', 'sub', 'deep.txt'), 'deep\n')
    writeFileSync(join(dir, 'one.txt'), 'one\n')
    const template = Template({ fileContextPath: dir })
      .fromBaseImage()
      .setEnvs({ FLAVOUR: 'plum', OTHER: 'a b' })
      .runCmd('mkdir -p /tmp/w && echo "$FLAVOUR $(id -un)" > /tmp/w/who')
      .runCmd('touch /opt/by-root && echo "to stderr" >&2', { user: 'root' })
      .copy('app', '/srv/app', { mode: 0o755 })
      .copy('one.txt', 'renamed.txt')
      .copy('one.txt', '/srv/into/', { user: 'root' })
      .setWorkdir('/srv/app')
      .runCmd('pwd > /tmp/w/pwd')
      .setStartCmd('bash /srv/app/main.sh', waitForFile('/tmp/up'))
    const lines = []
    const info = await Template.build(template, 'my-app:v1', { cpuCount: 1, memoryMB: 512, tags: ['stable'], onBuildLogs: (l) => lines.push(l.message) })
    assert.equal(info.templateId, 'my-app')
    assert.ok(lines.some((l) => l.includes('to stderr')) && lines.some((l) => l.includes('RUN')), lines.join('\n'))
    assert.equal(await Template.exists('my-app:v1'), true)
    assert.equal(await Template.exists('no-such-app'), false)
    const s = await Sandbox.create('my-app:v1', { timeoutMs: 120_000 })
    assert.equal(
      inside(s, 'cat /tmp/w/who /tmp/w/pwd; echo $FLAVOUR; pwd; cat /srv/app/sub/deep.txt ~/renamed.txt /srv/into/one.txt; stat -c "%U %a" /srv/app/main.sh /srv/into/one.txt /opt/by-root'),
      'plum user\n/srv/app\nplum\n/srv/app\ndeep\none\none\nuser 755\nroot 644\nroot 644\n')
    inside(s, 'pgrep -f "sleep 1000" && test -e /tmp/up') // at once: create waits until it is ready
    const [twin] = await s.fork()
    await soon('and in a fork', () => !fails(twin, 'pgrep -f "sleep 1000"'))
    await twin.kill()
    await s.pause({ keepMemory: false })
    await s.connect()
    await soon('and after a pause without memory', () => !fails(s, 'pgrep -f "sleep 1000"'))
    assert.ok(fails(s, 'test -e /.den-copy'))
    const made = await s.getInfo()
    assert.deepEqual([made.templateId, made.cpuCount, made.memoryMB], ['my-app:v1', 1, 512])
    await s.kill()
    const tags = (await Template.getTags('my-app')).map((t) => t.tag).sort()
    assert.deepEqual(tags, ['stable', 'v1'])
    const set = await Template.assignTags('my-app:v1', ['default', 'prod'])
    assert.deepEqual(set.tags, ['default', 'prod'])
    assert.equal(set.buildId, info.buildId)
    const d = await Sandbox.create('my-app') // what was asked for is told
    await d.kill()
    await Template.removeTags('my-app', ['prod'])
    await assert.rejects(Sandbox.create('my-app:prod'), /not found/)
    // built again from itself, the upload is remembered
    const again = []
    await Template.build(Template({ fileContextPath: dir }).fromTemplate('my-app:v1').copy('one.txt', '/srv/again.txt'), 'my-app:v2', { onBuildLogs: (l) => again.push(l.message) })
    const e = await Sandbox.create('my-app:v2')
    assert.equal(inside(e, 'cat /srv/again.txt; echo $FLAVOUR'), 'one\nplum\n')
    await e.kill()
    // what goes wrong says where
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('true').runCmd('echo oh no; exit 7'), 'bad-app'),
      (err) => err instanceof BuildError && /exit status 7/.test(err.message))
    await assert.rejects(Template.build(Template().fromTemplate('no-such'), 'bad-app'), BuildError)
    await assert.rejects(Template.build(Template().fromTemplate('base'), 'Bad Name'), (err) => /400/.test(err.message))
    assert.equal(await Template.exists('bad-app'), false)
    const shown = await raw('GET', '/templates')
    assert.ok(shown.json.some((t) => t.templateID === 'my-app'))
    assert.equal((await raw('GET', '/templates/my-app')).json.builds.length, 2)
    assert.equal((await raw('GET', '/templates/aliases/my-app')).json.templateID, 'my-app')
    assert.equal((await raw('DELETE', '/templates/my-app')).status, 204)
    assert.equal((await raw('DELETE', '/templates/my-app')).status, 404)
    await assert.rejects(Sandbox.create('my-app:v2'), /not found/)
    // a link to send files to is for one hash of one organisation
    const link = (await raw('GET', `/templates/x/files/${'a'.repeat(64)}`)).json
    assert.equal(link.present, false)
    assert.equal((await fetch(link.url.replace('a'.repeat(64), 'b'.repeat(64)), { method: 'PUT', body: 'x' })).status, 404)
    assert.equal((await fetch(link.url.slice(0, -1) + (link.url.endsWith('0') ? '1' : '0'), { method: 'PUT', body: 'x' })).status, 404)
    assert.equal((await fetch(link.url, { method: 'PUT', body: 'x' })).status, 200)
    assert.equal((await raw('GET', `/templates/x/files/${'a'.repeat(64)}`)).json.present, true)
    assert.equal((await raw('GET', `/templates/x/files/..%2f..%2fserve.db`)).status, 400)
  },

  async errors() {
    const { OTHER_KEY } = process.env
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
    await assert.rejects(Sandbox.create('no-such-template'), (e) => e instanceof SandboxError && /404.*no-such-template.*not found/.test(e.message))
    await assert.rejects(Sandbox.create({ timeoutMs: 0 }), /Timeout must be greater than 0/)
    await assert.rejects(Sandbox.create({ timeoutMs: 1e12 }), /400/)
    for (const body of ['{', '[]', '"x"', '{"timeout":"1"}', '{"metadata":{"a":1}}', '{"envVars":[]}', '{"network":7}', '{"templateID":7}'])
      assert.equal((await raw('POST', '/v2/sandboxes', body)).status, 400, body)
    assert.equal((await raw('POST', '/v2/sandboxes', { autoPauseMemory: false })).json.code, 400)
    assert.equal((await raw('POST', '/v2/sandboxes', { autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } })).json.code, 400)
    const none = await raw('GET', '/sandboxes/' + 'i' + 'a'.repeat(18))
    assert.deepEqual(none.json, { code: 404, message: `Sandbox "i${'a'.repeat(18)}" doesn't exist or you don't have access to it` })
    // somebody else's box is not there
    const s = await Sandbox.create({ timeoutMs: 60_000 })
    await assert.rejects(Sandbox.getInfo(s.sandboxId, { apiKey: OTHER_KEY }), SandboxNotFoundError)
    assert.equal(await Sandbox.kill(s.sandboxId, { apiKey: OTHER_KEY }), false)
    await assert.rejects(Sandbox.connect(s.sandboxId, { apiKey: OTHER_KEY }), SandboxNotFoundError)
    await assert.rejects(Sandbox.pause(s.sandboxId, { apiKey: OTHER_KEY }), SandboxNotFoundError)
    await assert.rejects(Sandbox.updateNetwork(s.sandboxId, {}, { apiKey: OTHER_KEY }), SandboxNotFoundError)
    await assert.rejects(Sandbox.createSnapshot(s.sandboxId, { apiKey: OTHER_KEY }), SandboxNotFoundError)
    assert.deepEqual((await Sandbox.list({ apiKey: OTHER_KEY }).nextItems()).map((x) => x.sandboxId), [])
    // and neither are its templates and secrets
    await s.createSnapshot({ name: 'private-thing' })
    if (OTHER_KEY) {
      await Secret.create('mine-alone', 'a value of it', { apiKey: OTHER_KEY })
      assert.equal(await Secret.exists('mine-alone'), false)
      assert.equal(await Secret.destroy('mine-alone', { apiKey: OTHER_KEY }), true)
      const theirs = await Sandbox.create({ timeoutMs: 60_000, apiKey: OTHER_KEY })
      await theirs.createSnapshot({ name: 'their-thing' })
      await assert.rejects(Sandbox.create('their-thing'), /not found/)
      await assert.rejects(Sandbox.create('o.other.their-thing'), /not found/)
      assert.equal(await Sandbox.deleteSnapshot('their-thing'), false)
      assert.equal(await Sandbox.deleteSnapshot('private-thing', { apiKey: OTHER_KEY }), false)
      assert.equal(await Sandbox.deleteSnapshot('their-thing', { apiKey: OTHER_KEY }), true)
      await theirs.kill()
    }
    assert.equal(await Sandbox.deleteSnapshot('private-thing'), true)
    // what everybody builds on is not anybody's to change
    const { PLAIN_KEY } = process.env
    const plain = await Sandbox.create({ timeoutMs: 60_000, apiKey: PLAIN_KEY })
    await assert.rejects(plain.createSnapshot({ name: 'base' }), /403/)
    await assert.rejects(Sandbox.deleteSnapshot('base', { apiKey: PLAIN_KEY }), /403/)
    await assert.rejects(Template.build(Template().fromTemplate('base'), 'base', { apiKey: PLAIN_KEY }), /403/)
    for (const image of ['127.0.0.1:5000/x', 'localhost/x:1', 'intranet:5000/x'])
      await assert.rejects(Template.build(Template().fromImage(image), 'pulls', { apiKey: PLAIN_KEY }), (e) => e instanceof BuildError && /near the server/.test(e.message), image)
    await plain.kill()
    assert.equal((await raw('GET', '/sandboxes/' + s.sandboxId, undefined, { 'X-API-KEY': process.env.READ_KEY })).json.envdAccessToken, undefined)
    assert.equal((await raw('DELETE', '/sandboxes/' + s.sandboxId, undefined, { 'X-API-KEY': process.env.READ_KEY })).status, 403)
    // and an image's digest is no name
    for (const id of [JSON.parse(den('template', 'inspect', '--json', 'base')).id, 'cafecafecafe'])
      await assert.rejects(Sandbox.create(id), /404/)
    await s.kill()
    assert.equal((await raw('GET', '/teams')).json.length, 1)
  },

  async volumes() {
    const { OTHER_KEY } = process.env
    const v = await Volume.create('shared-data')
    await assert.rejects(Volume.create('shared-data'), (e) => e instanceof VolumeError && /already exists/.test(e.message))
    assert.deepEqual(await Volume.list(), [{ volumeId: v.volumeId, name: 'shared-data' }])
    // from outside
    const made = await v.writeFile('/in/a.txt', 'hello\n', { force: true, mode: 0o640, uid: 1000, gid: 1000 })
    assert.deepEqual([made.path, made.name, made.type, made.size, made.mode, made.uid], ['/in/a.txt', 'a.txt', 'file', 6, 0o640, 1000])
    assert.equal(await v.readFile('/in/a.txt'), 'hello\n')
    assert.equal(await v.exists('/in/b.txt'), false)
    await assert.rejects(v.readFile('/in/b.txt'), VolumePathNotFoundError)
    await assert.rejects(v.writeFile('/no/such/dir', 'x'), VolumePathNotFoundError)
    await assert.rejects(v.readFile('/../etc/passwd'), VolumeError)
    assert.equal((await v.makeDir('/d')).type, 'directory')
    assert.equal((await v.updateMetadata('/d', { mode: 0o700, gid: 7 })).mode, 0o700)
    assert.deepEqual((await v.list('/', { depth: 2 })).map((e) => e.path), ['/d', '/in', '/in/a.txt'])
    const big = new Uint8Array(3 << 20).map((_, i) => i * 7)
    await v.writeFile('/big', big)
    assert.deepEqual(Buffer.from(await v.readFile('/big', { format: 'bytes' })).equals(Buffer.from(big)), true)
    await v.writeFile('/empty', '')
    assert.equal(await v.readFile('/empty'), '')
    // from two boxes at once
    const a = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/data': v } })
    const b = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/mnt/x': 'shared-data' } })
    assert.deepEqual((await a.getInfo()).volumeMounts, [{ name: 'shared-data', path: '/data' }])
    assert.equal(inside(a, 'cat /data/in/a.txt; echo from a > /data/w; stat -c "%U %a" /data/w /data/in/a.txt'), 'hello\nuser 644\nuser 640\n')
    assert.equal(inside(b, 'cat /mnt/x/w; stat -c %U /mnt/x/w; echo from b >> /mnt/x/w'), 'from a\nuser\n')
    assert.equal(inside(a, 'cat /data/w; sudo -n true 2>/dev/null; true'), 'from a\nfrom b\n')
    assert.equal(inside(a, 'cp /bin/true /data/s; chmod 4755 /data/s; touch /data/root; chown 0:0 /data/root; stat -c "%U" /data/root', '--user', 'root'), 'root\n')
    const [f] = await a.fork()
    assert.equal(inside(f, 'cat /data/w'), 'from a\nfrom b\n')
    for (const s of [a, b, f]) await s.kill()
    assert.equal(await v.readFile('/w'), 'from a\nfrom b\n')
    await v.remove('/in')
    assert.equal(await v.exists('/in/a.txt'), false)
    // whose it is
    await assert.rejects(Volume.getInfo(v.volumeId, { apiKey: OTHER_KEY }), VolumeNotFoundError)
    await assert.rejects(Sandbox.create({ apiKey: OTHER_KEY, volumeMounts: { '/data': 'shared-data' } }), /400.*shared-data/)
    const bad = new Volume(v.volumeId, v.name, '0'.repeat(40), v.domain)
    await assert.rejects(bad.list('/'), AuthenticationError)
    for (const at of ['/proc', '/dev/x', 'relative', '/a/../proc'])
      await assert.rejects(Sandbox.create({ volumeMounts: { [at]: v } }), /400/, at)
    assert.equal(await Volume.destroy(v.volumeId), true)
    assert.equal(await Volume.destroy(v.volumeId), false)
    await assert.rejects(v.list('/'), VolumePathNotFoundError)
    assert.deepEqual(await Volume.list(), [])
  },

  // with a key that may ask a few times a minute
  async rate() {
    const seen = []
    for (let i = 0; i < 30; i++) seen.push(await raw('GET', '/teams', undefined, { 'X-API-KEY': process.env.SLOW_KEY }))
    const no = seen.find((r) => r.status === 429)
    assert.ok(no, 'never 429')
    assert.equal(no.json.code, 429)
    assert.match(no.headers.get('retry-after'), /^[1-9][0-9]*$/)
    await assert.rejects(Sandbox.getInfo('i' + 'a'.repeat(18), { apiKey: process.env.SLOW_KEY, retries: 0 }), RateLimitError)
  },

  // What a quota does not allow is no matter of patience: another error, with all that there is to say.
  async quota() {
    const key = { apiKey: process.env.FEW_KEY }
    const s = await Sandbox.create({ timeoutMs: 60_000, ...key })
    const began = Date.now()
    await assert.rejects(Sandbox.create({ timeoutMs: 60_000, ...key }), (e) => {
      assert.ok(e instanceof SandboxError && !(e instanceof RateLimitError), e)
      assert.match(e.message, /403: the quota of key [0-9a-f]+ allows 1 boxes; its boxes have 1, and this would need 1 more: delete boxes, ask for less, or get a key with a larger quota/)
      return true
    })
    assert.ok(Date.now() - began < 10000, 'it was tried again')
    const forks = await raw('POST', `/sandboxes/${s.sandboxId}/fork`, {}, { 'X-API-KEY': process.env.FEW_KEY })
    assert.equal(forks.json[0].error.code, 403)
    assert.match(forks.json[0].error.message, /allows 1 boxes/)
    await s.kill()
    await (await Sandbox.create({ timeoutMs: 60_000, ...key })).kill()
  },
}

const part = parts[process.argv[2]]
if (!part) throw new Error(`parts: ${Object.keys(parts).join(' ')}`)
await part()
console.log(`${process.argv[2]}: ok`)
process.exit(0)
