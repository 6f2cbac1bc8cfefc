// The code interpreter through E2B's own SDK, unmodified. One part a run: node code_interpreter.mjs PART
import assert from 'node:assert/strict'
import { Sandbox, NotFoundError, SandboxError, TimeoutError, InvalidArgumentError } from '@e2b/code-interpreter'

const sleep = (ms) => new Promise((ok) => setTimeout(ok, ms))

async function thrown(kind, fn, words) {
  try {
    await fn()
  } catch (e) {
    assert.ok(e instanceof kind, `${e.name}: ${e.message}`)
    if (words) assert.match(e.message, words)
    return e
  }
  assert.fail('nothing was thrown')
}

const parts = {
  async python(s) {
    const first = await s.runCode('x = 1; x')
    assert.equal(first.text, '1')
    assert.equal(first.executionCount, 1)
    assert.equal(first.results.length, 1)
    assert.ok(first.results[0].isMainResult)
    assert.equal((await s.runCode('x += 1; x')).text, '2')
    assert.equal((await s.runCode("'text'")).text, 'text')

    const heard = []
    const e = await s.runCode(
      "import sys, time\nfor i in range(3):\n    print('out', i, flush=True); print('err', i, file=sys.stderr, flush=True); time.sleep(0.3)\n'done'",
      {
        onStdout: (m) => heard.push(['out', m.line, Date.now(), m.error]),
        onStderr: (m) => heard.push(['err', m.line, Date.now(), m.error]),
        onResult: (r) => heard.push(['result', r.text, Date.now()]),
      })
    assert.deepEqual(heard.map((h) => h[1]), ['out 0\n', 'err 0\n', 'out 1\n', 'err 1\n', 'out 2\n', 'err 2\n', 'done'])
    assert.ok(heard[4][2] - heard[0][2] >= 500, 'it comes as it is printed, not at the end')
    assert.equal(e.logs.stdout.join(''), 'out 0\nout 1\nout 2\n')
    assert.equal(e.logs.stderr.join(''), 'err 0\nerr 1\nerr 2\n')

    let told
    const bad = await s.runCode('def f(): raise ValueError("no")\nf()', { onError: (x) => { told = x } })
    assert.equal(bad.error.name, 'ValueError')
    assert.equal(bad.error.value, 'no')
    assert.match(bad.error.traceback, /f\(\)/)
    assert.equal(told.name, 'ValueError')
    assert.equal((await s.runCode('x')).text, '2')

    const env = await s.runCode('import os; os.environ["A"]', { envs: { A: 'one "two"' } })
    assert.equal(env.text, 'one "two"')
    assert.equal((await s.runCode('os.environ.get("A")')).text, undefined)
    // what the sandbox was made with is there, too
    assert.equal((await s.runCode('os.environ["OF_THE_BOX"], os.environ["E2B_SANDBOX"]')).text, "('yes', 'true')")
    // files are the same as those of the sandbox
    await s.files.write('/home/user/data.csv', 'a,b\n1,2\n')
    assert.equal((await s.runCode('open("data.csv").read()')).text, 'a,b\\n1,2\\n')
    await s.runCode('open("made.txt", "w").write("by a cell")')
    assert.equal(await s.files.read('/home/user/made.txt'), 'by a cell')
  },

  async rich(s) {
    const frame = await s.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", "y"]})')
    assert.deepEqual(frame.results[0].data, { a: [1, 2], b: ['x', 'y'] })
    assert.match(frame.results[0].html, /<table/)
    assert.ok(frame.results[0].formats().includes('data'))

    const line = await s.runCode(
      'import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [2, 4, 8], label="up")\nplt.title("T"); plt.xlabel("Time (s)"); plt.ylabel("V")\nplt.show()')
    const [r] = line.results
    assert.ok(Buffer.from(r.png, 'base64').subarray(1, 4).toString() === 'PNG')
    assert.equal(r.chart.type, 'line')
    assert.equal(r.chart.title, 'T')
    assert.equal(r.chart.x_label, 'Time (s)')
    assert.equal(r.chart.x_unit, 's')
    assert.deepEqual(r.chart.elements, [{ label: 'up', points: [[1, 2], [2, 4], [3, 8]] }])
    assert.ok(r.formats().includes('png'))
    assert.ok(!r.isMainResult)

    const bar = await s.runCode('plt.bar(["A", "B"], [10, 20], label="Sold"); plt.show()')
    assert.deepEqual(bar.results.at(-1).chart.elements, [{ label: 'A', group: 'Sold', value: 10 }, { label: 'B', group: 'Sold', value: 20 }])

    const many = await s.runCode('from IPython.display import display, HTML, Markdown, Latex, JSON\ndisplay(HTML("<b>h</b>")); display(Markdown("# m")); display(Latex("$l$")); display(JSON({"k": 1})); 5')
    assert.equal(many.results[0].html, '<b>h</b>')
    assert.equal(many.results[1].markdown, '# m')
    assert.equal(many.results[2].latex, '$l$')
    assert.deepEqual(many.results[3].json, { k: 1 })
    assert.equal(many.text, '5')
  },

  async languages(s) {
    const js = await s.runCode('const a = [1, 2]; console.log("hi"); a.map((x) => x * 2)', { language: 'js' })
    assert.equal(js.text, '[ 2, 4 ]')
    assert.deepEqual(js.logs.stdout, ['hi\n'])
    assert.equal((await s.runCode('a.length', { language: 'javascript' })).text, '2')
    assert.equal((await s.runCode('null.x', { language: 'js' })).error.name, 'TypeError')

    const sh = await s.runCode('cd /tmp; V=3; echo $V', { language: 'bash' })
    assert.deepEqual(sh.logs.stdout, ['3\n'])
    assert.deepEqual((await s.runCode('echo $V $PWD', { language: 'bash' })).logs.stdout, ['3 /tmp\n'])
    assert.equal((await s.runCode('exit 3', { language: 'bash' })).error.value, '3')

    for (const language of ['r', 'java', 'cobol']) {
      const none = await s.runCode('1', { language })
      assert.equal(none.error.name, 'LanguageNotAvailable')
      assert.match(none.error.value, new RegExp(`'${language}'`))
      await thrown(SandboxError, () => s.createCodeContext({ language }), /400/)
    }
    await thrown(InvalidArgumentError, () => s.runCode('1', { language: 'js', context: 'x' }))
  },

  async contexts(s) {
    const a = await s.createCodeContext()
    const b = await s.createCodeContext({ cwd: '/tmp', language: 'python' })
    assert.equal(a.language, 'python')
    assert.equal(a.cwd, '/home/user')
    assert.equal(b.cwd, '/tmp')
    await s.runCode('v = 1', { context: a })
    assert.equal((await s.runCode('v', { context: b })).error.name, 'NameError')
    assert.equal((await s.runCode('v', { context: a })).text, '1')
    assert.equal((await s.runCode('import os; os.getcwd()', { context: b })).text, '/tmp')
    const ids = (await s.listCodeContexts()).map((c) => c.id)
    assert.ok(ids.includes(a.id) && ids.includes(b.id) && ids.length >= 3)
    await s.restartCodeContext(a)
    assert.equal((await s.runCode('v', { context: a })).error.name, 'NameError')
    await s.removeCodeContext(b.id)
    await thrown(NotFoundError, () => s.removeCodeContext(b), /Context .* not found/)
    await thrown(NotFoundError, () => s.restartCodeContext(b), /not found/)
    await thrown(NotFoundError, () => s.runCode('1', { context: b }), /not found/)
    // several at once do not wait for each other; one alone runs one cell at a time
    const [c, d] = await Promise.all([s.createCodeContext(), s.createCodeContext()])
    const began = Date.now()
    await Promise.all([c, d].map((context) => s.runCode('import time; time.sleep(1)', { context })))
    assert.ok(Date.now() - began < 1900, `both took ${Date.now() - began} ms`)
    await s.runCode('order = []', { context: c })
    await Promise.all([1, 2, 3, 4].map((k) => s.runCode(`order.append(${k}); time.sleep(0.05); order.append(${k})`, { context: c })))
    assert.equal((await s.runCode('all(order[i] == order[i + 1] for i in range(0, 8, 2))', { context: c })).text, 'True')
  },

  async trouble(s) {
    await s.runCode('x = 5')
    const began = Date.now()
    await thrown(TimeoutError, () => s.runCode('import time\nwhile True: time.sleep(0.05)', { timeoutMs: 1500 }), /timeoutMs/)
    // whoever gave up interrupted it, and what was there is there
    assert.equal((await s.runCode('x')).text, '5')
    assert.ok(Date.now() - began < 8000, 'the next cell did not wait for the one that was given up')
    const dead = await s.runCode('import os; os.kill(os.getpid(), 9)')
    assert.equal(dead.error.name, 'ContextDied')
    assert.match(dead.error.value, /SIGKILL/)
    assert.equal((await s.runCode('1 + 1')).text, '2')
    const long = await s.runCode('import time; time.sleep(7); "late"', { timeoutMs: 30_000 })
    assert.equal(long.text, 'late')
    const big = await s.runCode('print("x" * 5_000_000)')
    assert.equal(big.logs.stdout.join('').length, 5_000_001)
    // the box is killed in the middle
    const running = s.runCode('import time; time.sleep(60)').then(() => 'no error', (e) => e)
    await sleep(1000)
    await s.kill()
    const e = await running
    assert.ok(e instanceof TimeoutError, `${e?.name}: ${e?.message}`)
  },
}

const [part] = process.argv.slice(2)
const s = await Sandbox.create({ timeoutMs: 120_000, envs: { OF_THE_BOX: 'yes' } })
try {
  await parts[part](s)
} finally {
  await s.kill().catch(() => {})
}
process.exit(0) // a call that was refused leaves the SDK's timer running for a minute
