// Many clients of the unmodified SDK at once, each with a life of its own: create, commands, files, a stream that
// stays open, info, kill. Every answer is checked; one that is wrong, lost or another's is a failure.
//   node soak.mjs CLIENTS TURNS
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const { Sandbox } = createRequire(resolve(process.env.NODE_DIR, 'x.js'))('e2b')
const [clients, turns] = process.argv.slice(2).map(Number)
const ids = new Set()
let done = 0

async function turn(sandbox, mark) {
  const seen = []
  const stream = await sandbox.commands.run(`for i in 1 2 3; do echo ${mark} $i; sleep 0.2; done; exit 3`,
    { background: true, onStdout: (text) => seen.push(text) })
  const [said, written] = await Promise.all([
    sandbox.commands.run(`echo ${mark}; echo oops >&2`),
    sandbox.files.write(`/tmp/${mark}`, mark.repeat(1000)),
  ])
  assert.equal(said.stdout, `${mark}\n`)
  assert.equal(said.stderr, 'oops\n')
  assert.equal(written.path, `/tmp/${mark}`)
  assert.equal(await sandbox.files.read(`/tmp/${mark}`), mark.repeat(1000))
  await assert.rejects(stream.wait(), (e) => e.exitCode === 3)
  assert.equal(seen.join(''), `${mark} 1\n${mark} 2\n${mark} 3\n`)
}

async function client(n) {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, metadata: { client: String(n) } })
  assert(!ids.has(sandbox.sandboxId), 'two sandboxes have one id')
  ids.add(sandbox.sandboxId)
  for (let i = 0; i < turns; i++) await turn(sandbox, `c${n}t${i}`)
  const info = await sandbox.getInfo()
  assert.equal(info.metadata.client, String(n))
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
  done++
}

const results = await Promise.allSettled(Array.from({ length: clients }, (_, n) => client(n)))
const failed = results.filter((r) => r.status === 'rejected')
for (const f of failed.slice(0, 5)) console.error(f.reason)
console.log(`${done} of ${clients} clients did ${turns} turns each`)
process.exit(failed.length ? 1 : 0)
