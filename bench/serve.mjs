// What an E2B user's program feels: the unmodified SDK against den serve. Called by bench/serve.py, which sets
// E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Prints lines NAME<TAB>NANOSECONDS.
//   node serve.mjs turn N AT_ONCE [WARM]  create, first output of a command, kill; WARM such before, which are not told
//   node serve.mjs exec N             a command in a sandbox that is there
//   node serve.mjs bytes MIB N        a file up and down
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const { Sandbox } = createRequire(resolve(process.env.NODE_DIR, 'x.js'))('e2b')
let silent = false
const say = (name, ns) => silent || console.log(`${name}\t${ns}`)
const tell = (name, since) => say(name, process.hrtime.bigint() - since)
const now = () => process.hrtime.bigint()

async function turn() {
  const begin = now()
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
  tell('create', begin)
  let first
  const result = await sandbox.commands.run('echo hello', { onStdout: () => { first ??= now() } })
  if (result.stdout !== 'hello\n') throw new Error(`the command said ${JSON.stringify(result.stdout)}`)
  say('to the first output', first - begin)
  if (!(await sandbox.kill())) throw new Error('the sandbox was not there to be killed')
  tell('all', begin)
}

async function turns(n, atOnce, warm = 0) {
  silent = true
  for (let i = 0; i < warm; i++) await turn()
  silent = false
  let left = n
  const one = async () => { while (left-- > 0) await turn() }
  await Promise.all(Array.from({ length: atOnce }, one))
}

async function execs(n) {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
  for (let i = 0; i < n; i++) {
    const begin = now()
    await sandbox.commands.run('true')
    tell('exec', begin)
  }
  await sandbox.kill()
}

async function bytes(mib, n) {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
  const data = new Blob([new Uint8Array(mib << 20).fill(97)])
  for (let i = 0; i < n; i++) {
    let begin = now()
    await sandbox.files.write('/tmp/big', data)
    tell('up', begin)
    begin = now()
    const back = await sandbox.files.read('/tmp/big', { format: 'bytes' })
    tell('down', begin)
    if (back.length !== mib << 20) throw new Error(`${back.length} bytes came back`)
  }
  await sandbox.kill()
}

const [what, ...rest] = process.argv.slice(2)
await { turn: turns, exec: execs, bytes }[what](...rest.map(Number))
process.exit(0)
