// What E2B's own SDK, unmodified, does inside a box. One part a run: node e2b_box.mjs PART
// E2B_PACKAGE: another version of it
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { request } from 'node:http'
import { gzipSync, gunzipSync } from 'node:zlib'

const {
  Sandbox, CommandExitError, TimeoutError, NotFoundError, FileNotFoundError, InvalidArgumentError, AuthenticationError,
  NotEnoughSpaceError, SandboxError, SandboxNotFoundError, FileType, FilesystemEventType,
} = await import(process.env.E2B_PACKAGE ?? 'e2b')

const api = process.env.E2B_API_URL
const sleep = (ms) => new Promise((ok) => setTimeout(ok, ms))
const sha = (data) => createHash('sha256').update(data).digest('hex')

async function soon(what, fn, ms = 10000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50)) if (await fn()) return
  assert.fail(what)
}

async function failure(promise, type) {
  try {
    await promise
  } catch (err) {
    assert.ok(err instanceof type, `${err?.constructor?.name}: ${err?.message}, not ${type.name}`)
    return err
  }
  assert.fail('it did not fail')
}

// A plain call, as an older or another client would make it.
async function call(s, path, { method = 'GET', headers = {}, body, token = s.envdAccessToken, id = s.sandboxId } = {}) {
  const own = { ...(id && { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983' }), ...(token && { 'X-Access-Token': token }) }
  return fetch(api + path, { method, headers: { ...own, ...headers }, body })
}
const rpc = (s, name, message, opts = {}) =>
  call(s, name, { method: 'POST', body: typeof message === 'string' ? message : JSON.stringify(message), ...opts,
    headers: { 'Content-Type': 'application/json', ...opts.headers } })

function envelope(message) {
  const text = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(text.length, 1)
  return Buffer.concat([head, text])
}
function frames(bytes) {
  const all = []
  for (let at = 0; at < bytes.length;) {
    const n = bytes.readUInt32BE(at + 1)
    all.push({ flags: bytes[at], message: JSON.parse(bytes.subarray(at + 5, at + 5 + n)) })
    at += 5 + n
  }
  return all
}
const stream = (s, name, message, headers = {}) =>
  call(s, name, { method: 'POST', body: envelope(message), headers: { 'Content-Type': 'application/connect+json', ...headers } })

let made = []
async function sandbox(opts = {}) {
  const s = await Sandbox.create({ timeoutMs: 300_000, ...opts })
  made.push(s)
  return s
}

const parts = {
  async commands() {
    const s = await sandbox({ envs: { FROM_BOX: 'box' } })
    let seen = ''
    const r = await s.commands.run('echo out; echo err >&2; exit 0', { onStdout: (x) => { seen += 'o' + x }, onStderr: (x) => { seen += 'e' + x } })
    assert.deepEqual([r.exitCode, r.stdout, r.stderr, r.error], [0, 'out\n', 'err\n', undefined])
    assert.ok(seen.includes('oout\n') && seen.includes('eerr\n'))
    let err = await failure(s.commands.run('echo before; exit 3'), CommandExitError)
    assert.deepEqual([err.exitCode, err.message, err.stdout], [3, 'exit status 3', 'before\n'])
    err = await failure(s.commands.run('kill -9 $$'), CommandExitError)
    assert.deepEqual([err.exitCode, err.message], [-1, 'signal: killed'])
    err = await failure(s.commands.run('kill -TERM $$'), CommandExitError)
    assert.equal(err.message, 'signal: terminated')
    err = await failure(s.commands.run('definitely-not-there'), CommandExitError)
    assert.equal(err.exitCode, 127)
    // environment
    assert.equal((await s.commands.run('echo $FROM_BOX-$MINE-$E2B_SANDBOX', { envs: { MINE: 'a b"$x\'ü' } })).stdout, 'box-a b"$x\'ü-true\n')
    assert.equal((await s.commands.run('echo $FROM_BOX', { envs: { FROM_BOX: 'call' } })).stdout, 'call\n')
    assert.equal((await s.commands.run('echo $E2B_SANDBOX_ID')).stdout, s.sandboxId + '\n')
    // where, and as whom
    assert.equal((await s.commands.run('pwd; id -un; echo $HOME $USER $LOGNAME')).stdout, '/home/user\nuser\n/home/user user user\n')
    assert.equal((await s.commands.run('id -un; echo $HOME', { user: 'root' })).stdout, 'root\n/root\n')
    assert.equal((await s.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    await s.commands.run('mkdir -p sub')
    assert.equal((await s.commands.run('pwd', { cwd: 'sub' })).stdout, '/home/user/sub\n')
    assert.equal((await s.commands.run('pwd', { cwd: '~/sub' })).stdout, '/home/user/sub\n')
    err = await failure(s.commands.run('pwd', { cwd: '/no/such/place' }), InvalidArgumentError)
    assert.match(err.message, /cwd '\/no\/such\/place' does not exist/)
    err = await failure(s.commands.run('pwd', { user: 'nobody-here' }), AuthenticationError)
    assert.match(err.message, /invalid username: 'nobody-here'/)
    // no stdin unless asked for
    assert.equal((await s.commands.run('cat; echo end')).stdout, 'end\n')
    // bytes that are no text
    const odd = await s.commands.run("printf '\\xff\\x00\\xfe'")
    assert.equal(odd.stdout, '�\0�')
    // a long command line, unicode and quotes
    const long = 'x'.repeat(100_000)
    assert.equal((await s.commands.run(`echo '${long}' | wc -c`)).stdout.trim(), '100001')
    assert.equal((await s.commands.run(`echo 'äöü 日本 🎉 "quoted"'`)).stdout, 'äöü 日本 🎉 "quoted"\n')
    // many at once
    const many = await Promise.all(Array.from({ length: 30 }, (_, i) => s.commands.run(`sleep 0.$((RANDOM % 3)); echo ${i}`)))
    assert.deepEqual(many.map((m) => m.stdout), Array.from({ length: 30 }, (_, i) => `${i}\n`))
  },

  async background() {
    const s = await sandbox()
    const c = await s.commands.run('echo one; sleep 0.3; echo two; sleep 1000', { background: true })
    assert.ok(c.pid > 0)
    await soon('two', () => c.stdout === 'one\ntwo\n')
    const list = await s.commands.list()
    const own = list.find((p) => p.pid === c.pid)
    assert.equal(own.cmd, '/bin/bash')
    assert.deepEqual(own.args, ['-l', '-c', 'echo one; sleep 0.3; echo two; sleep 1000'])
    assert.equal(await c.kill(), true)
    let err = await failure(c.wait(), CommandExitError)
    assert.deepEqual([err.exitCode, err.message], [-1, 'signal: killed'])
    assert.equal(await s.commands.kill(c.pid), false)
    assert.equal(await s.commands.kill(999999), false)
    assert.ok(!(await s.commands.list()).some((p) => p.pid === c.pid))
    // somebody else connects: from now on, without what was before
    const t = await s.commands.run('echo early; while read -r x; do echo "got $x"; done; exit 5', { background: true, stdin: true })
    await soon('early', () => t.stdout === 'early\n')
    const other = await s.commands.connect(t.pid)
    await s.commands.sendStdin(t.pid, 'hello\n')
    await soon('hello', () => other.stdout === 'got hello\n' && t.stdout === 'early\ngot hello\n')
    await t.disconnect()
    await other.sendStdin('again\n')
    await soon('again', () => other.stdout === 'got hello\ngot again\n')
    await other.closeStdin()
    err = await failure(other.wait(), CommandExitError)
    assert.equal(err.exitCode, 5)
    // the end is remembered for a while
    const late = await s.commands.connect(t.pid)
    err = await failure(late.wait(), CommandExitError)
    assert.equal(err.exitCode, 5)
    await failure(s.commands.connect(999999), NotFoundError)
    // a client that leaves does not end what it started, nor hold it up
    const noisy = await s.commands.run('head -c 20000000 /dev/zero; echo done > /tmp/noisy', { background: true })
    await noisy.disconnect()
    await soon('noisy', async () => await s.files.exists('/tmp/noisy'))
    // stdin that was not asked for
    const closed = await s.commands.run('sleep 1000', { background: true })
    await failure(s.commands.sendStdin(closed.pid, 'x'), SandboxError)
    await failure(s.commands.sendStdin(999999, 'x'), NotFoundError)
    await closed.kill()
    // a lot of input
    const wc = await s.commands.run('wc -c', { background: true, stdin: true })
    await wc.sendStdin('y'.repeat(1_000_000))
    await wc.closeStdin()
    assert.equal((await wc.wait()).stdout.trim(), '1000000')
  },

  async timeouts() {
    const s = await sandbox()
    const began = Date.now()
    await failure(s.commands.run('echo $$ > /tmp/pid; sleep 1000 & sleep 1001', { timeoutMs: 1000 }), TimeoutError)
    assert.ok(Date.now() - began < 4000)
    await soon('the whole tree is gone', async () => (await s.commands.run('pgrep -x sleep || echo none')).stdout === 'none\n')
    // the deadline counts when nobody listens, too
    const c = await s.commands.run('sleep 1002', { background: true, timeoutMs: 1500 })
    await c.disconnect()
    assert.equal((await s.commands.run('pgrep -x sleep | wc -l')).stdout, '1\n')
    await soon('left behind', async () => (await s.commands.run('pgrep -x sleep || echo none')).stdout === 'none\n')
    // and not without one
    assert.equal((await s.commands.run('sleep 2; echo late', { timeoutMs: 0 })).stdout, 'late\n')
    // keepalives, and the frames as they are
    const res = await stream(s, '/process.Process/Start', { process: { cmd: '/bin/sh', args: ['-c', 'sleep 2.5; printf hi; exit 3'] }, stdin: false },
      { 'Keepalive-Ping-Interval': '1', 'Connect-Protocol-Version': '1', 'Connect-Timeout-Ms': '20000' })
    assert.deepEqual([res.status, res.headers.get('content-type')], [200, 'application/connect+json'])
    const all = frames(Buffer.from(await res.arrayBuffer()))
    assert.ok(all[0].message.event.start.pid > 0)
    assert.equal(all.filter((f) => f.message.event?.keepalive).length, 2)
    assert.deepEqual(all.slice(-3), [
      { flags: 0, message: { event: { data: { stdout: 'aGk=' } } } },
      { flags: 0, message: { event: { end: { exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' } } } },
      { flags: 2, message: {} },
    ])
    const out = frames(Buffer.from(await (await stream(s, '/process.Process/Start', { process: { cmd: 'sleep', args: ['60'] } }, { 'Connect-Timeout-Ms': '300' })).arrayBuffer()))
    assert.deepEqual(out.at(-1), { flags: 2, message: { error: { code: 'deadline_exceeded', message: 'context deadline exceeded' } } })
    const missing = frames(Buffer.from(await (await stream(s, '/process.Process/Connect', { process: { pid: 99999 } })).arrayBuffer()))
    assert.deepEqual(missing, [{ flags: 2, message: { error: { code: 'not_found', message: 'process with pid 99999 not found' } } }])
  },

  async tags() {
    const s = await sandbox()
    const res = await stream(s, '/process.Process/Start', { process: { cmd: 'cat' }, tag: 'my-cat' })
    const reader = res.body.getReader()
    await reader.read()
    assert.equal((await rpc(s, '/process.Process/SendInput', { process: { tag: 'my-cat' }, input: { stdin: 'aGk=' } })).status, 200)
    const list = await (await rpc(s, '/process.Process/List', {})).json()
    assert.equal(list.processes[0].tag, 'my-cat')
    assert.equal((await rpc(s, '/process.Process/SendSignal', { process: { tag: 'my-cat' }, signal: 'SIGNAL_SIGTERM' })).status, 200)
    await soon('ended', async () => (await (await rpc(s, '/process.Process/List', {})).json()).processes.length === 0)
    const gone = await rpc(s, '/process.Process/SendSignal', { process: { tag: 'nobody' }, signal: 'SIGNAL_SIGKILL' })
    assert.deepEqual([gone.status, await gone.json()], [404, { code: 'not_found', message: 'process with tag nobody not found' }])
    assert.equal((await rpc(s, '/process.Process/SendSignal', { process: { pid: 1 }, signal: 'SIGNAL_SIGHUP' })).status, 501)
    assert.equal((await rpc(s, '/process.Process/StreamInput', {})).status, 501)
    assert.equal((await rpc(s, '/process.Process/SendInput', { process: { pid: 1 }, input: { stdin: '***' } })).status, 400)
    assert.equal((await rpc(s, '/process.Process/SendInput', {})).status, 501)
  },

  async pty() {
    const s = await sandbox()
    let text = ''
    const p = await s.pty.create({ cols: 90, rows: 30, onData: (d) => { text += new TextDecoder().decode(d) }, timeoutMs: 0, envs: { MARK: 'm1' } })
    await s.pty.sendInput(p.pid, new TextEncoder().encode('stty size; echo $MARK-$TERM; tty\n'))
    await soon('size', () => /30 90/.test(text) && /m1-xterm/.test(text) && /\/dev\/pts\//.test(text))
    await s.pty.resize(p.pid, { cols: 101, rows: 41 })
    await s.pty.sendInput(p.pid, new TextEncoder().encode('stty size\n'))
    await soon('new size', () => /41 101/.test(text))
    let other = ''
    const q = await s.pty.connect(p.pid, { onData: (d) => { other += new TextDecoder().decode(d) } })
    await s.pty.sendInput(p.pid, new TextEncoder().encode('echo both-$((40+2))\n'))
    await soon('both', () => text.includes('both-42') && other.includes('both-42'))
    assert.equal(await s.pty.kill(p.pid), true)
    await failure(p.wait(), CommandExitError)
    await failure(q.wait(), CommandExitError)
    assert.equal(await s.pty.kill(p.pid), false)
    const r = await s.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
    await s.pty.sendInput(r.pid, new TextEncoder().encode('exit 7\n'))
    assert.equal((await failure(r.wait(), CommandExitError)).exitCode, 7)
  },

  async output() {
    const s = await sandbox()
    let bytes = 0
    await s.commands.run('head -c 52428800 /dev/zero | tr "\\0" x', { timeoutMs: 0, onStdout: (x) => { bytes += x.length } })
    assert.equal(bytes, 52428800)
    // a reader that does not read: the program waits, the server holds little, and others are served
    const before = memory()
    const req = request(api + '/process.Process/Start', { method: 'POST', headers: { 'Content-Type': 'application/connect+json',
      'E2b-Sandbox-Id': s.sandboxId, 'X-Access-Token': s.envdAccessToken } })
    req.end(envelope({ process: { cmd: '/bin/sh', args: ['-c', 'head -c 200000000 /dev/zero; echo over > /tmp/over'] }, stdin: false }))
    const res = await new Promise((ok) => req.on('response', ok))
    res.pause()
    await sleep(1500)
    assert.equal(await s.files.exists('/tmp/over'), false)
    assert.ok(memory() - before < 20e6, `the server grew by ${memory() - before}`)
    assert.equal((await s.commands.run('echo fine')).stdout, 'fine\n')
    let got = 0
    for await (const chunk of res) got += chunk.length
    assert.ok(got > 200000000 * 4 / 3)
    await soon('over', async () => await s.files.exists('/tmp/over'))
    assert.ok(memory() - before < 20e6, `the server grew by ${memory() - before}`)
  },

  async files() {
    const s = await sandbox()
    const w = await s.files.write('a.txt', 'hello')
    assert.deepEqual([w.name, w.path, w.type], ['a.txt', '/home/user/a.txt', 'file'])
    assert.equal(await s.files.read('a.txt'), 'hello')
    assert.equal(await s.files.read('/home/user/../user/./a.txt'), 'hello')
    await s.files.write('~/a.txt', 'hi') // shorter: what was there is gone
    assert.equal(await s.files.read('~/a.txt'), 'hi')
    await s.files.write('empty', '')
    assert.equal(await s.files.read('empty'), '')
    assert.deepEqual(await s.files.read('empty', { format: 'bytes' }), new Uint8Array(0))
    // every kind of data, and of reading
    const data = randomBytes(300_000)
    await s.files.write('deep/er/bytes', data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
    assert.equal(sha(await s.files.read('deep/er/bytes', { format: 'bytes' })), sha(data))
    await s.files.write('blob', new Blob([data]))
    assert.equal(sha(Buffer.from(await (await s.files.read('blob', { format: 'blob' })).arrayBuffer())), sha(data))
    await s.files.write('stream', new Blob([data]).stream())
    const read = []
    for await (const chunk of await s.files.read('stream', { format: 'stream' })) read.push(chunk)
    assert.equal(sha(Buffer.concat(read)), sha(data))
    // several at once
    const several = await s.files.write([{ path: 'm/1', data: 'one' }, { path: '/tmp/m2', data: 'two' }, { path: 'm/3', data: new Blob(['three']) }])
    assert.deepEqual(several.map((f) => f.path), ['/home/user/m/1', '/tmp/m2', '/home/user/m/3'])
    assert.deepEqual(await Promise.all(['m/1', '/tmp/m2', 'm/3'].map((p) => s.files.read(p))), ['one', 'two', 'three'])
    // whose it is, and who may
    assert.equal((await s.commands.run('stat -c "%U:%G %a" a.txt deep/er m/1')).stdout, 'user:user 644\nuser:user 755\nuser:user 644\n')
    await s.files.write('/root/r', 'root only', { user: 'root' })
    assert.equal(await s.files.read('r', { user: 'root' }), 'root only')
    await s.files.write('/opt/new/dir/x', 'given') // the agent of E2B is root, and gives what it makes
    assert.equal((await s.commands.run('stat -c %U /opt/new /opt/new/dir /opt/new/dir/x')).stdout, 'user\nuser\nuser\n')
    assert.equal(await s.files.read('/root/r'), 'root only')
    await s.commands.run('echo secret > /home/user/owned; chmod 600 /home/user/owned', { user: 'root' })
    await s.files.write('owned', 'mine')
    assert.equal((await s.commands.run('cat owned; stat -c %U owned')).stdout, 'mineuser\n')
    // odd names
    for (const name of ['with space', 'quo"te', "apos'trophe", 'new\nline', 'ünï-日本-🎉', 'a%22b%2Fc', '-dash', 'semi;colon', '#hash?q=1&x', 'back\\slash', 'tab\there', '*']) {
      await s.files.write(name, name)
      assert.equal(await s.files.read(name), name, name)
      assert.equal((await s.files.getInfo(name)).name, name)
      assert.equal(await s.files.read(new URL(await s.downloadUrl(name)).searchParams.get('path')), name)
      if (!name.includes('%22')) { // a form cannot tell it from a quote
        await s.files.write([{ path: 'form/' + name, data: name }])
        assert.equal(await s.files.read('form/' + name), name, name)
      }
    }
    // what fails
    let err = await failure(s.files.read('nothing'), FileNotFoundError)
    assert.equal(err.message, "path '/home/user/nothing' does not exist")
    err = await failure(s.files.read('deep'), InvalidArgumentError)
    assert.equal(err.message, "path '/home/user/deep' is a directory")
    err = await failure(s.files.write('deep', 'x'), InvalidArgumentError)
    assert.match(err.message, /is a directory/)
    await failure(s.files.read('a.txt', { user: 'nobody-here' }), AuthenticationError)
    await failure(s.files.read('~other/x'), InvalidArgumentError)
    // inside stays inside
    const host = await s.files.read('../../../../../../../../etc/hostname').catch(() => '')
    assert.equal(host, (await s.commands.run('cat /etc/hostname 2>/dev/null || true')).stdout)
    await s.files.write('/../../../../../../tmp/climbed', 'x')
    assert.equal(await s.files.read('/tmp/climbed'), 'x')
    assert.equal((await s.files.getInfo('/..')).path, '/')
    // links
    await s.commands.run('ln -s /tmp/m2 lnk; ln -s nowhere dangling; ln -s /home/user/m lnkdir; ln -s loop1 loop2; ln -s loop2 loop1; mkfifo fifo')
    assert.equal(await s.files.read('lnk'), 'two')
    await s.files.write('lnk', 'through')
    assert.equal(await s.files.read('/tmp/m2'), 'through')
    assert.equal(await s.files.read('lnkdir/1'), 'one')
    await failure(s.files.read('fifo'), InvalidArgumentError)
    await failure(s.files.read('dangling'), FileNotFoundError)
  },

  async large() {
    const s = await sandbox()
    const before = memory()
    const size = 100 * 1024 * 1024
    await s.commands.run(`head -c ${size} /dev/urandom > /tmp/big; sha256sum < /tmp/big > /tmp/sum`, { timeoutMs: 0 })
    const want = (await s.files.read('/tmp/sum')).slice(0, 64)
    let t = Date.now()
    const hash = createHash('sha256')
    let n = 0
    for await (const chunk of await s.files.read('/tmp/big', { format: 'stream' })) {
      hash.update(chunk)
      n += chunk.length
    }
    console.log(`download ${Math.round(n / 1048.576 / (Date.now() - t))} MiB/s`)
    assert.deepEqual([n, hash.digest('hex')], [size, want])
    const data = randomBytes(size)
    for (const [how, body, opts] of [['multipart', data.buffer, {}], ['stream', new Blob([data]).stream(), { requestTimeoutMs: 0 }], ['gzip', data.buffer, { gzip: true }]]) {
      t = Date.now()
      await s.files.write('/tmp/up', body, { requestTimeoutMs: 0, ...opts })
      console.log(`upload, ${how}: ${Math.round(size / 1048.576 / (Date.now() - t))} MiB/s`)
      assert.equal((await s.commands.run('sha256sum < /tmp/up', { timeoutMs: 0 })).stdout.slice(0, 64), sha(data), how)
    }
    assert.ok(memory() - before < 20e6, `the server grew by ${memory() - before}`)
  },

  // metadata is the file's own
  async metadata() {
    const s = await sandbox()
    await s.files.write('d/file', 'x', { metadata: { Author: 'ann', 'x-note': 'a = b' } })
    assert.deepEqual((await s.files.getInfo('d/file')).metadata, { author: 'ann', 'x-note': 'a = b' })
    assert.equal((await s.commands.run('python3 -c "import os; print(os.getxattr(\'d/file\', \'user.e2b.author\').decode())"')).stdout, 'ann\n')
    await s.commands.run('python3 -c "import os; os.setxattr(\'d/file\', \'user.e2b.more\', b\'1\')"')
    assert.equal((await s.files.getInfo('d/file')).metadata.more, '1')
    const again = await s.files.write('d/file', 'y', { metadata: { other: '2' } })
    assert.deepEqual(again.metadata, { other: '2' })
    assert.deepEqual((await s.files.getInfo('d/file')).metadata, { other: '2' })
    const tooMuch = await call(s, '/files?path=x', { method: 'POST', body: 'x', headers: { 'Content-Type': 'application/octet-stream', 'X-Metadata-a': 'v'.repeat(5000) } })
    assert.equal(tooMuch.status, 400)
  },

  async filesystem() {
    const s = await sandbox()
    assert.equal(await s.files.makeDir('d/e/f'), true)
    assert.equal(await s.files.makeDir('d/e/f'), false)
    assert.equal((await s.commands.run('stat -c %U d d/e d/e/f')).stdout, 'user\nuser\nuser\n')
    assert.equal(await s.files.makeDir('/opt/q/r'), true)
    assert.equal((await s.commands.run('stat -c %U /opt/q /opt/q/r')).stdout, 'user\nuser\n')
    assert.equal(await s.files.makeDir('/'), false)
    await s.files.write('d/file', 'x'.repeat(1234))
    await failure(s.files.makeDir('d/file'), InvalidArgumentError)
    await failure(s.files.makeDir('d/file/sub'), InvalidArgumentError)
    // one entry, with everything
    await s.commands.run('touch -d "2024-02-03T04:05:06.789123456Z" d/file; chmod 640 d/file')
    const info = await s.files.getInfo('d/file')
    assert.deepEqual({ ...info, modifiedTime: info.modifiedTime.toISOString() }, {
      name: 'file', type: FileType.FILE, path: '/home/user/d/file', size: 1234, mode: 0o640, permissions: '-rw-r-----', owner: 'user',
      group: 'user', modifiedTime: '2024-02-03T04:05:06.789Z', symlinkTarget: undefined, metadata: undefined })
    const rawInfo = await (await rpc(s, '/filesystem.Filesystem/Stat', { path: 'd/file' })).json()
    assert.equal(rawInfo.entry.modifiedTime, '2024-02-03T04:05:06.789123456Z')
    assert.equal(rawInfo.entry.size, '1234')
    const perms = async (p) => (await s.files.getInfo(p)).permissions
    await s.commands.run('chmod 1777 d/e; mkdir sg; chmod 2755 sg; cp /bin/true su; chmod 4755 su; ln -s d/file ln; ln -s nowhere dead')
    assert.deepEqual(await Promise.all(['d', 'd/e', 'sg', 'su', '/tmp'].map(perms)), ['drwxr-xr-x', 'dtrwxrwxrwx', 'dgrwxr-xr-x', 'urwxr-xr-x', 'dtrwxrwxrwx'])
    const link = await s.files.getInfo('ln')
    assert.deepEqual([link.type, link.size, link.mode, link.permissions, link.symlinkTarget], [FileType.FILE, 1234, 0o640, 'Lrwxrwxrwx', '/home/user/d/file'])
    const dead = await s.files.getInfo('dead')
    assert.deepEqual([dead.type, dead.permissions], [FileType.SYMLINK, 'Lrwxrwxrwx'])
    // lists
    await s.commands.run('mkdir -p l/b/c/d l/a; touch l/z l/a/1 l/b/c/2 l/b/c/d/3; ln -s /tmp l/t')
    const names = async (depth) => (await s.files.list('l', { depth })).map((e) => e.path.slice('/home/user/l/'.length))
    assert.deepEqual(await names(1), ['a', 'b', 't', 'z'])
    assert.deepEqual(await names(2), ['a', 'a/1', 'b', 'b/c', 't', 'z'])
    assert.deepEqual(await names(10), ['a', 'a/1', 'b', 'b/c', 'b/c/2', 'b/c/d', 'b/c/d/3', 't', 'z'])
    const t = (await s.files.list('l')).find((e) => e.name === 't')
    assert.deepEqual([t.type, t.symlinkTarget], [FileType.DIR, '/tmp'])
    assert.ok((await s.files.list('/')).some((e) => e.path === '/etc' && e.type === FileType.DIR && e.owner === 'root'))
    await s.commands.run('mkdir odd; cd odd; touch "$(printf \'bad\\xffname\')" "$(printf \'new\\nline\')"')
    assert.deepEqual((await s.files.list('odd')).map((e) => e.name), ['bad�name', 'new\nline'])
    await s.commands.run('mkdir many; cd many; seq 5000 | xargs touch')
    assert.equal((await s.files.list('many')).length, 5000)
    await failure(s.files.list('nothing'), FileNotFoundError)
    await failure(s.files.list('d/file'), InvalidArgumentError)
    assert.ok((await s.files.list('/root', { user: 'user' })).length >= 0)
    // move, remove, exists
    await s.files.write('d/file', 'y')
    const moved = await s.files.rename('d/file', 'new/place/file2')
    assert.deepEqual([moved.name, moved.path, moved.type], ['file2', '/home/user/new/place/file2', FileType.FILE])
    assert.equal(await s.files.exists('d/file'), false)
    assert.equal(await s.files.exists('new/place/file2'), true)
    assert.equal((await s.commands.run('stat -c %U new/place')).stdout, 'user\n')
    const err = await failure(s.files.rename('nothing', 'x'), FileNotFoundError)
    assert.match(err.message, /source file not found/)
    await s.files.write('over', 'old')
    await s.files.rename('new/place/file2', 'over')
    assert.equal(await s.files.read('over'), 'y')
    await s.files.rename('l', 'moved')
    assert.equal((await s.files.list('moved', { depth: 5 })).length, 9)
    await s.files.remove('moved')
    assert.equal(await s.files.exists('moved'), false)
    await s.files.remove('moved')
    await s.files.remove('over/below')
    assert.equal(await s.files.exists('/tmp'), true)
    await s.commands.run('mkdir -p /opt/rootonly; touch /opt/rootonly/x', { user: 'root' })
    await s.files.remove('/opt/rootonly')
    assert.equal(await s.files.exists('/opt/rootonly'), false)
    assert.equal((await rpc(s, '/filesystem.Filesystem/Remove', { path: '' })).status, 400)
    assert.equal(await s.files.exists('/home/user'), true)
  },

  async watch() {
    const s = await sandbox()
    await s.files.makeDir('w/sub')
    const seen = []
    const h = await s.files.watchDir('w', (e) => seen.push(`${e.type} ${e.name}`), { timeoutMs: 0 })
    const deep = []
    const r = await s.files.watchDir('w', (e) => deep.push(e), { recursive: true, timeoutMs: 0, includeEntry: true })
    await s.files.write('w/f', 'one')
    await soon('create', () => seen.includes('create f') && seen.includes('write f'))
    seen.length = 0
    await s.files.write('w/f', 'two')
    await soon('write', () => seen.includes('write f'))
    await s.commands.run('chmod 600 w/f')
    await soon('chmod', () => seen.includes('chmod f'))
    await s.files.rename('w/f', 'w/g')
    await soon('rename', () => seen.includes('rename f') && seen.includes('create g'))
    await s.files.remove('w/g')
    await soon('remove', () => seen.includes('remove g'))
    await s.files.write('w/sub/x', '1')
    await soon('deep', () => deep.some((e) => e.name === 'sub/x' && e.type === FilesystemEventType.CREATE))
    assert.ok(!seen.some((e) => e.includes('sub/x')))
    await s.files.makeDir('w/new/er')
    await s.files.write('w/new/er/y', '22')
    await soon('new directories', () => deep.some((e) => e.name === 'new/er/y' && e.type === FilesystemEventType.WRITE && e.entry?.size === 2))
    assert.equal(deep.find((e) => e.name === 'new/er/y' && e.entry)?.entry.path, '/home/user/w/new/er/y')
    await h.stop()
    const n = seen.length
    await s.files.write('w/after', 'x')
    await soon('deep goes on', () => deep.some((e) => e.name === 'after'))
    assert.equal(seen.length, n)
    let exit = 0
    const shortly = await s.files.watchDir('w', () => {}, { timeoutMs: 700, onExit: () => { exit++ } })
    await soon('timeout', () => exit === 1)
    await shortly.stop()
    await r.stop()
    await failure(s.files.watchDir('nothing', () => {}), FileNotFoundError)
    await failure(s.files.watchDir('w/after', () => {}), InvalidArgumentError)
    // asked from time to time
    const id = (await (await rpc(s, '/filesystem.Filesystem/CreateWatcher', { path: 'w', recursive: true })).json()).watcherId
    await s.files.write('w/polled', 'x')
    const events = []
    await soon('polled', async () => {
      events.push(...(await (await rpc(s, '/filesystem.Filesystem/GetWatcherEvents', { watcherId: id })).json()).events)
      return events.some((e) => e.name === 'polled' && e.type === 'EVENT_TYPE_WRITE')
    })
    assert.deepEqual((await (await rpc(s, '/filesystem.Filesystem/GetWatcherEvents', { watcherId: id })).json()).events, [])
    const other = await sandbox()
    assert.equal((await rpc(other, '/filesystem.Filesystem/GetWatcherEvents', { watcherId: id })).status, 404)
    await s.commands.run('cd w; for i in $(seq 6000); do : > n$i; done')
    await sleep(500)
    const many = (await (await rpc(s, '/filesystem.Filesystem/GetWatcherEvents', { watcherId: id })).json()).events
    assert.ok(many.length <= 4096 && many.length > 1000, `${many.length} events`)
    assert.equal((await rpc(s, '/filesystem.Filesystem/RemoveWatcher', { watcherId: id })).status, 200)
    assert.equal((await rpc(s, '/filesystem.Filesystem/RemoveWatcher', { watcherId: id })).status, 404)
    const ids = await Promise.all(Array.from({ length: 40 }, async () => (await rpc(s, '/filesystem.Filesystem/CreateWatcher', { path: 'w' })).status))
    assert.deepEqual([ids.filter((x) => x === 200).length, ids.filter((x) => x === 429).length], [32, 8])
  },

  async signed() {
    const s = await sandbox()
    await s.files.write('s.txt', 'signed')
    const get = async (url, opts) => {
      const res = await fetch(url, opts)
      return [res.status, await res.text()]
    }
    const url = await s.downloadUrl('s.txt')
    assert.deepEqual(await get(url), [200, 'signed'])
    assert.deepEqual(await get(await s.downloadUrl('s.txt', { user: 'root' })), [404, '{"code":404,"message":"path \'/root/s.txt\' does not exist"}'])
    assert.deepEqual(await get(await s.downloadUrl('s.txt', { useSignatureExpiration: 60 })), [200, 'signed'])
    const old = await s.downloadUrl('s.txt', { useSignatureExpiration: -60 })
    assert.deepEqual((await get(old)).map((x, i) => (i ? JSON.parse(x) : x)), [401, { code: 401, message: 'signature is already expired' }])
    const changed = (name, value, base = url) => {
      const u = new URL(base)
      u.searchParams.set(name, value)
      return u.toString()
    }
    const bad = { code: 401, message: 'invalid signature' }
    const refused = async (u, opts) => {
      const [status, text] = await get(u, opts)
      assert.equal(status, 401)
      return JSON.parse(text)
    }
    assert.deepEqual(await refused(changed('path', 'other.txt')), bad)
    assert.deepEqual(await refused(changed('username', 'root')), bad)
    assert.deepEqual(await refused(changed('signature', 'v1_' + 'A'.repeat(43))), bad)
    assert.deepEqual(await refused(changed('signature_expiration', '9999999999', old)), bad)
    assert.deepEqual(await refused(changed('signature_expiration', '9999999999')), bad)
    const form = (text) => {
      const f = new FormData()
      f.append('file', new Blob([text]), 'ignored')
      return f
    }
    assert.deepEqual(await refused(url, { method: 'POST', body: form('x') }), bad) // to read is not to write
    const up = await s.uploadUrl('up.txt', { useSignatureExpiration: 60 })
    const [status, text] = await get(up, { method: 'POST', body: form('sent') })
    assert.deepEqual([status, JSON.parse(text)], [200, [{ name: 'up.txt', path: '/home/user/up.txt', type: 'file' }]])
    assert.equal(await s.files.read('up.txt'), 'sent')
    const headers = { 'E2b-Sandbox-Id': s.sandboxId }
    assert.deepEqual(await refused(`${api}/files?path=s.txt`, { headers }), { code: 401, message: 'missing signature query parameter' })
    assert.deepEqual(await refused(`${api}/files?path=s.txt&signature=x`, { headers }), bad)
    assert.deepEqual(await refused(url, { headers: { ...headers, 'X-Access-Token': 'wrong' } }), { code: 401, message: 'access token present in header but does not match' })
    // another box's
    const other = await sandbox()
    await other.files.write('s.txt', 'other')
    assert.deepEqual(await refused(url, { headers: { 'E2b-Sandbox-Id': other.sandboxId } }), bad)
    assert.deepEqual(await get(url), [200, 'signed'])
    await other.kill()
    await s.kill()
    assert.equal((await fetch(url)).status >= 400, true)
  },

  async http() {
    const s = await sandbox()
    assert.equal(await s.isRunning(), true)
    // who may not
    const words = 'unauthorized access, please provide a valid access token or method signing if supported'
    for (const token of [null, 'wrong', 'x'.repeat(40)]) {
      const res = await rpc(s, '/process.Process/List', {}, { token })
      assert.deepEqual([res.status, await res.json()], [401, { code: 401, message: words }])
    }
    const other = await sandbox()
    assert.equal((await rpc(s, '/process.Process/List', {}, { token: other.envdAccessToken })).status, 401)
    assert.equal((await rpc(s, '/process.Process/List', {}, { id: null })).status, 200) // its token is enough
    const health = await call(s, '/health', { token: null })
    assert.equal(health.status, 204)
    // by name
    const host = await new Promise((ok) => request(api + '/files?path=/etc/hostname', { headers: { Host: `49983-${s.sandboxId}.example.org`, 'X-Access-Token': s.envdAccessToken } }, ok).end())
    host.resume()
    assert.equal(host.statusCode, 200)
    // what is not a call
    assert.equal((await rpc(s, '/process.Process/List', 'nonsense')).status, 400)
    assert.equal((await rpc(s, '/process.Process/List', '[]')).status, 400)
    assert.equal((await rpc(s, '/process.Process/List', {}, { headers: { 'Content-Type': 'application/proto' } })).status, 415)
    assert.equal((await rpc(s, '/process.Process/Nothing', {})).status, 404)
    const cut = await call(s, '/process.Process/Start', { method: 'POST', body: envelope({ process: { cmd: 'true' } }).subarray(0, 20), headers: { 'Content-Type': 'application/connect+json' } })
    assert.equal(frames(Buffer.from(await cut.arrayBuffer()))[0].message.error.code, 'invalid_argument')
    const zipped = envelope({})
    zipped[0] = 1
    const packed = await call(s, '/process.Process/Start', { method: 'POST', body: zipped, headers: { 'Content-Type': 'application/connect+json' } })
    assert.equal(frames(Buffer.from(await packed.arrayBuffer()))[0].message.error.code, 'unimplemented')
    // parts of files, compressed ones
    const data = randomBytes(600_000)
    await s.files.write('data', data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
    const part = async (range) => {
      const res = await call(s, '/files?path=data', { headers: { Range: range } })
      return [res.status, res.headers.get('content-range'), Buffer.from(await res.arrayBuffer())]
    }
    assert.deepEqual(await part('bytes=10-19'), [206, 'bytes 10-19/600000', data.subarray(10, 20)])
    assert.deepEqual(await part('bytes=599990-'), [206, 'bytes 599990-599999/600000', data.subarray(599990)])
    assert.deepEqual(await part('bytes=-5'), [206, 'bytes 599995-599999/600000', data.subarray(599995)])
    assert.deepEqual((await part('bytes=0-999999'))[2].length, 600000)
    assert.deepEqual((await part('bytes=600000-')).slice(0, 2), [416, 'bytes */600000'])
    assert.equal((await part('lines=1-2'))[0], 200)
    const plain = async (path, headers) => new Promise((ok) => request(api + path, { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'X-Access-Token': s.envdAccessToken, ...headers } }, async (res) => {
      const all = []
      for await (const c of res) all.push(c)
      ok([res, Buffer.concat(all)])
    }).end())
    await s.files.write('text', 'compress me '.repeat(100_000))
    for (const path of ['text', 'a.txt']) {
      if (path === 'a.txt') await s.files.write(path, 'small')
      const [res, body] = await plain('/files?path=' + path, { 'Accept-Encoding': 'gzip' })
      assert.equal(res.headers['content-encoding'], 'gzip')
      assert.equal(gunzipSync(body).toString(), await s.files.read(path))
    }
    let [res, body] = await plain('/files?path=text', { 'Accept-Encoding': 'gzip, deflate, br' })
    assert.deepEqual([res.headers['content-encoding'], body.length, res.headers['content-length']], [undefined, 1200000, '1200000'])
    ;[res] = await plain('/files?path=text', { 'Accept-Encoding': 'br, identity;q=0' })
    assert.equal(res.statusCode, 406)
    ;[res] = await plain('/files?path=text', {})
    assert.match(res.headers['content-disposition'], /^attachment/)
    assert.equal(res.headers['x-content-type-options'], 'nosniff')
    assert.equal(await s.files.read('text', { gzip: true }), await s.files.read('text'))
    await s.files.write('zipped', 'unpacked '.repeat(50_000), { gzip: true })
    assert.equal(await s.files.read('zipped'), 'unpacked '.repeat(50_000))
    const octets = { 'Content-Type': 'application/octet-stream' }
    const twice = await call(s, '/files?path=twice', { method: 'POST', body: Buffer.concat([gzipSync('one'), gzipSync('two')]), headers: { ...octets, 'Content-Encoding': 'gzip' } })
    assert.equal(twice.status, 200)
    assert.equal(await s.files.read('twice'), 'onetwo')
    for (const [body2, headers] of [['not gzip', { ...octets, 'Content-Encoding': 'gzip' }], [gzipSync('x'.repeat(1000)).subarray(0, 20), { ...octets, 'Content-Encoding': 'gzip' }],
      ['x', { ...octets, 'Content-Encoding': 'br' }], ['x', { 'Content-Type': 'text/plain' }], ['--b\r\nnonsense', { 'Content-Type': 'multipart/form-data; boundary=b' }],
      ['--b\r\nContent-Disposition: form-data; name="file"\r\n\r\ncut', { 'Content-Type': 'multipart/form-data; boundary=b' }]]) {
      assert.equal((await call(s, '/files?path=bad', { method: 'POST', body: body2, headers })).status, 400)
    }
    assert.equal((await call(s, '/files', { method: 'POST', body: 'x', headers: octets })).status, 400)
    const nameless = await call(s, '/files?path=nameless', { method: 'POST', body: '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nno name\r\n--b--\r\n', headers: { 'Content-Type': 'multipart/form-data; boundary=b' } })
    assert.equal(nameless.status, 200)
    assert.equal(await s.files.read('nameless'), 'no name')
    // several become one
    await s.files.write([{ path: 'p/1', data: 'a'.repeat(1_500_000) }, { path: 'p/2', data: '' }, { path: 'p/3', data: 'end' }])
    const composed = await rpc(s, '/files/compose', { destination: 'p/all', source_paths: ['p/1', 'p/2', 'p/3'] })
    assert.deepEqual([composed.status, await composed.json()], [200, { name: 'all', path: '/home/user/p/all', type: 'file' }])
    assert.equal(await s.files.read('p/all'), 'a'.repeat(1_500_000) + 'end')
    assert.deepEqual((await s.files.list('p')).map((e) => e.name), ['all'])
    assert.equal((await rpc(s, '/files/compose', { destination: 'x', source_paths: ['nothing'] })).status, 404)
    // the rest
    const envs = await (await call(s, '/envs')).json()
    assert.equal(envs.E2B_SANDBOX, 'true')
    const m = await (await call(s, '/metrics')).json()
    assert.ok(m.ts > 1e9 && m.cpu_count >= 1 && m.mem_total > 0 && m.cpu_used_pct >= 0)
    const cors = await fetch(api + '/process.Process/List', { method: 'OPTIONS', headers: { Origin: 'https://example.org', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'x-access-token,e2b-sandbox-id', 'E2b-Sandbox-Id': s.sandboxId } })
    assert.ok(cors.status < 300 && cors.headers.get('access-control-allow-origin'), `CORS ${cors.status}`)
  },

  async gone() {
    const s = await sandbox()
    const c = await s.commands.run('echo up; sleep 1000', { background: true, timeoutMs: 0 })
    const w = []
    await s.files.watchDir('/tmp', () => {}, { timeoutMs: 0, onExit: (e) => w.push(e) })
    await soon('up', () => c.stdout === 'up\n')
    const waiting = failure(c.wait(), TimeoutError)
    await s.kill()
    const err = await waiting
    assert.match(err.message, /terminated|killed/)
    await soon('the watcher ends', () => w.length === 1)
    assert.equal(await s.isRunning(), false)
    const res = await call(s, '/health')
    assert.deepEqual([res.status, await res.json()], [502, { sandboxId: s.sandboxId, message: 'The sandbox was not found', code: 502 }])
    await failure(s.commands.run('true'), SandboxNotFoundError)
    await failure(s.files.list('/'), TimeoutError)
    await failure(s.files.read('/etc/hostname'), TimeoutError)
    await failure(s.files.write('x', 'y'), TimeoutError)
    assert.equal((await call(s, '/health', { id: 'ixxxxxxxxxxxxxxxxxx' })).status, 502)
    assert.equal((await call(s, '/health', { id: 'nonsense"id' })).status, 502)
    // paused
    const p = await sandbox()
    const d = await p.commands.run('while :; do date +%s%N; sleep 0.1; done', { background: true, timeoutMs: 0 })
    const cut = failure(d.wait(), TimeoutError)
    await p.pause()
    await cut
    assert.equal(await p.isRunning(), false)
    const back = await Sandbox.connect(p.sandboxId)
    assert.equal((await back.commands.run('echo back')).stdout, 'back\n')
    // the stream is gone, the program is not
    const again = await back.commands.connect(d.pid)
    await soon('it goes on', () => again.stdout.length > 30)
    await again.kill()
  },

  // Clients that go in the middle of something leave nothing behind, and hold up nobody.
  async leaving() {
    const s = await sandbox()
    await s.commands.run('head -c 50000000 /dev/zero > /tmp/zero')
    const fds = () => readdirSync(`/proc/${process.env.SERVER_PID}/fd`).length
    const before = fds()
    const leave = (path, opts, send) => new Promise((ok) => {
      const req = request(api + path, { ...opts, headers: { 'E2b-Sandbox-Id': s.sandboxId, 'X-Access-Token': s.envdAccessToken, ...opts.headers } })
      req.on('error', () => ok())
      req.on('response', (res) => res.once('data', () => { res.on('error', () => {}); req.destroy(); ok() }))
      send(req)
    })
    const octets = { method: 'POST', headers: { 'Content-Type': 'application/octet-stream' } }
    const form = { method: 'POST', headers: { 'Content-Type': 'multipart/form-data; boundary=b' } }
    const rpcStream = { method: 'POST', headers: { 'Content-Type': 'application/connect+json' } }
    for (let i = 0; i < 5; i++) {
      await leave('/files?path=/tmp/zero', {}, (r) => r.end())
      await leave('/files?path=/tmp/half', octets, (r) => { r.write(Buffer.alloc(300_000)); setTimeout(() => r.destroy(), 60) })
      await leave('/files?path=/tmp/half2', form, (r) => { r.write('--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf'); setTimeout(() => r.destroy(), 60) })
      await leave('/process.Process/Start', rpcStream, (r) => r.end(envelope({ process: { cmd: 'sleep', args: ['3'] } })))
      await leave('/filesystem.Filesystem/WatchDir', rpcStream, (r) => r.end(envelope({ path: '/tmp' })))
    }
    assert.equal((await s.commands.run('pgrep -x sleep | wc -l')).stdout, '5\n')
    await soon('connections are closed', () => fds() <= before + 2)
    await soon('no file operation is left', async () => !/den-init.*(watch|write|read)/.test((await s.commands.run('ps ax 2>/dev/null || true')).stdout))
    assert.equal((await s.commands.run('echo fine')).stdout, 'fine\n')
  },

  async full() {
    // no option of the SDK limits a disk, so this box is made with the other API
    const disk = 64 * 1024 * 1024
    const made1 = await fetch(api + '/v1/boxes', { method: 'POST', headers: { 'X-API-Key': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
      body: JSON.stringify({ template: 'base', limits: { disk } }) })
    assert.equal(made1.status, 201)
    const s = await Sandbox.connect('i' + (await made1.json()).id.slice(2))
    made.push(s)
    for (const data of [randomBytes(disk * 2).buffer, new Blob([randomBytes(disk * 2)]).stream()]) {
      const err = await failure(s.files.write('/home/user/big', data, { requestTimeoutMs: 0 }), NotEnoughSpaceError)
      assert.match(err.message, /not enough disk space/)
    }
    await s.files.remove('/home/user/big')
    await s.files.write('small', 'fits')
    assert.equal(await s.files.read('small'), 'fits')
  },

  async speed() {
    const s = await sandbox()
    const took = async (n, fn) => {
      const all = []
      for (let i = 0; i < n; i++) {
        const t = performance.now()
        await fn(i)
        all.push(performance.now() - t)
      }
      all.sort((a, b) => a - b)
      return `median ${all[n >> 1].toFixed(2)} ms, p95 ${all[Math.floor(n * 0.95)].toFixed(2)} ms`
    }
    await s.commands.run('true')
    console.log('bash -l -c true:', await took(60, () => s.commands.run('true')))
    console.log('/bin/true:', await took(60, async () => Buffer.from(await (await stream(s, '/process.Process/Start', { process: { cmd: '/bin/true' }, stdin: false })).arrayBuffer())))
    console.log('write 1 KiB:', await took(40, (i) => s.files.write(`f${i % 8}`, 'x'.repeat(1024))))
    console.log('read 1 KiB:', await took(60, (i) => s.files.read(`f${i % 8}`)))
    console.log('stat:', await took(60, () => s.files.exists('f1')))
    console.log('health:', await took(60, () => s.isRunning()))
  },

  // The SDK's own git, on a repository in the box.
  async git() {
    const s = await sandbox()
    const at = '/home/user/repo', g = s.git
    await s.commands.run('git config --global init.defaultBranch main')
    await g.init(at)
    await g.configureUser('Ann', 'ann@example.test', { scope: 'local', path: at })
    await s.files.write(`${at}/a.txt`, 'hi')
    assert.equal((await g.status(at)).isClean, false)
    await g.add(at)
    await g.commit(at, 'first')
    assert.deepEqual([(await g.status(at)).isClean, (await g.status(at)).currentBranch], [true, 'main'])
    await g.createBranch(at, 'feature')
    assert.ok((await g.branches(at)).branches.includes('feature'))
    await s.commands.run('git clone -q --bare repo bare.git')
    await g.clone('file:///home/user/bare.git', { path: '/home/user/two' })
    assert.equal(await s.files.read('two/a.txt'), 'hi')
    await g.remoteAdd(at, 'origin', '/home/user/bare.git')
    await g.push(at, { remote: 'origin', branch: 'feature' })
    await g.setConfig('den.x', 'y', { scope: 'local', path: at })
    assert.equal(await g.getConfig('den.x', { scope: 'local', path: at }), 'y')
  },

  // getHost() names a port, by which it is reached, and which is nobody's when the box is gone.
  async host() {
    const s = await sandbox()
    const get = (host) => new Promise((ok, no) => {
      const q = request(`${api}/`, { headers: { Host: host, Accept: 'text/html' } }, (r) => {
        let text = ''
        r.on('data', (d) => (text += d))
        r.on('end', () => ok({ status: r.statusCode, text }))
      })
      q.on('error', no)
      q.end()
    })
    const host = s.getHost(3000)
    assert.match(host, /^3000-i[a-z2-7]{18}\.localhost:\d+$/)
    assert.deepEqual([(await get(host)).status, (await get(host)).text], [502, '502: The sandbox is running but port is not open (port 3000)\n'])
    await s.files.write('index.html', 'from the box')
    await s.commands.run('python3 -m http.server 3000', { background: true, timeoutMs: 0 })
    await soon('it serves', async () => (await get(host)).status === 200)
    assert.equal((await get(host)).text, 'from the box')
    await s.kill()
    assert.equal((await get(host)).status, 404)
  },
}

// resident bytes of the server, whose pid the test gives
function memory() {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.env.SERVER_PID}/status`, 'utf8'))[1]) * 1024
}

const part = process.argv[2]
try {
  await parts[part]()
  console.log('ok')
} catch (err) {
  console.error(err)
  process.exitCode = 1
} finally {
  await Promise.all(made.map((s) => s.kill().catch(() => {})))
}
process.exit()
