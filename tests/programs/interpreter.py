#!/usr/bin/python3
"""interpreter.py HOST:PORT GROUP: asks the code interpreter of a box, in E2B's dialect, and says what is
wrong. Groups: python rich charts javascript bash contexts trouble load."""
import base64
import http.client
import json
import socket
import sys
import threading
import time

host, port = sys.argv[1].split(":")
failures = []


def check(what, ok, seen=None):
    if not ok:
        failures.append(what)
        print(f"FAILED {what}: {seen!r:.1500}")


def ask(method, path, body=None, timeout=60):
    c = http.client.HTTPConnection(host, int(port), timeout=timeout)
    c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    return r.status, r.reason, text


class Ran:
    def __init__(self, lines):
        self.lines = lines
        self.types = [x["type"] for x in lines]
        self.out = "".join(x["text"] for x in lines if x["type"] == "stdout")
        self.err = "".join(x["text"] for x in lines if x["type"] == "stderr")
        self.results = [x for x in lines if x["type"] == "result"]
        self.error = next((x for x in lines if x["type"] == "error"), None)
        self.count = next((x["execution_count"] for x in lines if x["type"] == "number_of_executions"), None)
        self.main = next((x.get("text") for x in self.results if x["is_main_result"]), None)
        check("the stream ends with end_of_execution", self.types[-1:] == ["end_of_execution"], lines)

    def __repr__(self):
        return repr(self.lines)


def run(code, timeout=60, **more):
    status, reason, text = ask("POST", "/execute", {"code": code, **more}, timeout)
    assert status == 200, (status, reason, text)
    return Ran([json.loads(x) for x in text.split("\n") if x])


def context(**body):
    status, reason, text = ask("POST", "/contexts", body)
    assert status == 200, (status, reason, text)
    return json.loads(text)


def hang_up_after(seconds, code, **more):
    """Starts an execution and goes away in the middle."""
    s = socket.create_connection((host, int(port)), 10)
    body = json.dumps({"code": code, **more}).encode()
    s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(seconds)
    s.close()


# ---- groups --------------------------------------------------------------------------------------


def python():
    r = run("x = 1\nprint('a'); import sys; print('b', file=sys.stderr); print('c'); x")
    check("result", r.main == "1" and r.results[0]["is_main_result"], r)
    check("output", r.out == "a\nc\n" and r.err == "b\n", r)
    check("order", [t for t in r.types if t in ("stdout", "stderr", "result")][-1] == "result", r)
    check("count", r.count == 1, r)
    check("timestamps", all("timestamp" in x for x in r.lines if x["type"] in ("stdout", "stderr")), r)
    r = run("x += 1; 'text %d' % x")
    check("state is kept", r.main == "text 2" and r.count == 2, r)
    check("a quote inside stays", run("\"it's\"").main == "it's", None)
    check("nothing to show", run("y = 3").results == [], None)
    r = run("def f():\n    raise ValueError('no')\nf()")
    check("error", r.error and r.error["name"] == "ValueError" and r.error["value"] == "no", r)
    check("traceback", r.error and "in f()" in r.error["traceback"] and "\x1b" not in r.error["traceback"], r)
    check("syntax error", run("a b").error["name"] == "SyntaxError")
    check("unicode", run("print('grün \U0001f600'); 'é'").out == "grün \U0001f600\n")
    check("shell", run("!echo from a shell").out.strip() == "from a shell")
    check("programs", run("import os; os.system('echo os'); None").out == "os\n")
    check("await", run("import asyncio; await asyncio.sleep(0.01); 5").main == "5")
    check("input is refused", run("input()").error["name"] == "StdinNotImplementedError")
    check("exit", run("exit()").error["name"] == "SystemExit" and run("x").main == "2")
    check("where and who", run("import os, getpass; (os.getcwd(), getpass.getuser())").main == "('/home/user', 'user')")
    r = run("import os; print(os.environ['A'], os.environ['HOME'])", env_vars={"A": "it's \"1\"\n", "HOME": "/h"})
    check("variables", r.out == "it's \"1\"\n /h\n", r)
    check("gone after", run("import os; os.environ.get('A'), os.environ['HOME']").main == "(None, '/home/user')")
    check("after an error, too", run("1/0", env_vars={"B": "1"}).error and run("import os; 'B' in os.environ").main == "False")


def rich():
    r = run("from IPython.display import *\ndisplay(HTML('<b>x</b>'), Markdown('# x'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'),"
            " Latex('$x$'), JSON({'a': [1]}), Javascript('1'))")
    seen = {k for x in r.results for k in x}
    check("representations", {"html", "markdown", "svg", "latex", "json", "javascript"} <= seen, r)
    check("none is the main one", not any(x["is_main_result"] for x in r.results), r)
    check("json", any(x.get("json") == {"a": [1]} for x in r.results), r)
    r = run("class X:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        return {'text/plain': 'x', 'x/y': 'z', 'image/jpeg': b'j'}\nX()")
    check("others are extra", r.results[0].get("extra") == {"x/y": "z"}, r)
    r = run("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None], 't': pd.to_datetime(['2024-01-02', None]), 'f': [0.5, float('nan')]})")
    data = r.results[0].get("data")
    check("data", data == {"a": [1, 2], "b": ["x", None], "t": ["2024-01-02T00:00:00", None], "f": [0.5, None]}, data)
    check("and html", "<table" in r.results[0]["html"] and r.results[0]["is_main_result"], r)
    check("a large one has none", "data" not in run("import numpy as np; pd.DataFrame(np.zeros((3000, 100)))").results[0])
    check("nan", run("from IPython.display import display; display({'application/json': float('nan')}, raw=True)").results[0]["json"] in (None, "nan"))


PLOT = "import matplotlib.pyplot as plt, numpy as np, datetime\n"


def plot(code):
    r = run(PLOT + code)
    if len(r.results) != 1 or not r.results[0].get("png"):
        check("a picture", False, r)
        return {}
    check("a PNG", base64.b64decode(r.results[0]["png"]).startswith(b"\x89PNG"), None)
    return r.results[0].get("chart") or {}


def charts():
    c = plot("plt.plot([1, 2, 3], [4, 5, 6.5], label='up'); plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('V [mV]'); plt.show()")
    check("line", c.get("type") == "line" and c["title"] == "T" and c["x_label"] == "Time (s)" and c["x_unit"] == "s" and c["y_unit"] == "mV", c)
    check("points", c.get("elements") == [{"label": "up", "points": [[1, 4], [2, 5], [3, 6.5]]}], c)
    check("ticks", c.get("x_scale") == "linear" and len(c["x_ticks"]) == len(c["x_tick_labels"]) > 2, c)
    c = plot("plt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2]); plt.show()")
    check("dates", c.get("x_scale") == "datetime" and c["elements"][0]["points"][0] == ["2024-01-01", 1] and c["x_ticks"][0].startswith("2024-01-01T"), c)
    c = plot("plt.plot([1, 2], [1, 100]); plt.yscale('log'); plt.show()")
    check("logarithmic", c.get("y_scale") == "log", c)
    c = plot("plt.scatter([1, 2], [3, 4], label='a'); plt.scatter([5], [6], label='b'); plt.show()")
    check("scatter", c.get("type") == "scatter" and [e["label"] for e in c["elements"]] == ["a", "b"] and c["elements"][1]["points"] == [[5, 6]], c)
    c = plot("plt.bar(['A', 'B'], [10, 20], label='Sold'); plt.show()")
    check("bar", c.get("type") == "bar" and c["elements"] == [{"label": "A", "group": "Sold", "value": 10}, {"label": "B", "group": "Sold", "value": 20}], c)
    c = plot("plt.barh(['A', 'B'], [1, 2]); plt.show()")
    check("lying bars", [(e["label"], e["value"]) for e in c.get("elements", [])] == [("A", 1), ("B", 2)], c)
    c = plot("x = np.arange(2); plt.bar(x - .2, [1, 2], .4, label='m'); plt.bar(x + .2, [3, 4], .4, label='n'); plt.xticks(x, ['P', 'Q']); plt.show()")
    check("groups of bars", [(e["label"], e["group"], e["value"]) for e in c.get("elements", [])] ==
          [("P", "m", 1), ("Q", "m", 2), ("P", "n", 3), ("Q", "n", 4)], c)
    c = plot("plt.pie([1, 3], labels=['A', 'B']); plt.title('P'); plt.show()")
    check("pie", c.get("type") == "pie" and c["title"] == "P" and [(e["label"], e["angle"], e["radius"]) for e in c["elements"]] == [("A", 90, 1), ("B", 270, 1)], c)
    box = {"min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 5, "outliers": [20]}
    for how, name in (("", "vertical"), (", vert=False", "lying"), (", patch_artist=True", "filled")):
        c = plot(f"plt.boxplot([[1, 2, 3, 4, 5], [1, 1, 2, 3, 3, 20]], labels=['A', 'B']{how}); plt.show()")
        check(f"box, {name}", c.get("type") == "box_and_whisker" and c["elements"][0] == {"label": "A", **box, "outliers": []} and
              c["elements"][1]["outliers"] == [20], c)
    c = plot("f, (a, b) = plt.subplots(1, 2); f.suptitle('S'); a.plot([1], [2]); b.bar(['x'], [1]); plt.show()")
    check("several", c.get("type") == "superchart" and c["title"] == "S" and [e["type"] for e in c["elements"]] == ["line", "bar"], c)
    c = plot("plt.imshow(np.zeros((4, 4))); plt.show()")
    check("unknown", c.get("type") == "unknown" and c["elements"] == [], c)
    check("too many points", plot("plt.plot(np.zeros(200001)); plt.show()") == {}, None)
    c = plot("import pandas as pd; pd.DataFrame({'a': [1, 2]}, index=pd.date_range('2024-01-01', periods=2)).plot(); plt.show()")
    check("pandas", c.get("type") == "line" and c["x_scale"] == "datetime" and c["elements"][0]["points"][0] == ["2024-01-01", 1], c)


def javascript():
    js = {"language": "js"}
    r = run("const a = { b: [1, 2] }; console.log('out'); console.error('err'); a", **js)
    check("result", r.main == "{ b: [ 1, 2 ] }" and r.out == "out\n" and r.err == "err\n" and r.count == 1, r)
    check("declared again", run("const a = 2; a + 1", **js).main == "3")
    check("state", run("a", **js).main == "2")
    check("text", run("'x'", **js).main == "x")
    check("await", run("await new Promise((r) => setTimeout(r, 20, 7))", **js).main == "7")
    r = run("import fs from 'fs'; import { sep as s, join } from 'path'; import * as os from 'node:os'\nconst { EOL } = await import('os'); [fs.existsSync('/'), s, join('a', 'b'), os.EOL === EOL]", **js)
    check("imports", r.main == "[ true, '/', 'a/b', true ]", r)
    check("require", run("require('path').sep", **js).main == "/")
    r = run("function f() { throw new TypeError('no') }\nf()", **js)
    check("error", r.error and r.error["name"] == "TypeError" and r.error["value"] == "no" and "at f" in r.error["traceback"] and "inspector" not in r.error["traceback"], r)
    check("syntax", run("a b", **js).error["name"] == "SyntaxError")
    check("thrown text", run("throw 'x'", **js).error["value"] == "'x'")
    check("rejected", run("await Promise.reject(new RangeError('r'))", **js).error["name"] == "RangeError")
    check("nothing", run("undefined", **js).results == [] and run("let z = 1", **js).results == [])
    check("variables", run("process.env.A", env_vars={"A": "1"}, **js).main == "1" and run("process.env.A", **js).results == [])
    check("programs", run("require('child_process').execSync('echo p >&2', {stdio: 'inherit'}); 1", **js).err == "p\n")
    r = run("display({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<i>' }) }); 1", **js)
    check("display", any(x.get("html") == "<i>" for x in r.results), r)
    check("a task that fails later is told", run("setTimeout(() => { throw new Error('late') }, 5); await new Promise((r) => setTimeout(r, 50))", **js).err.startswith("Uncaught Error: late"))
    hang_up_after(0.5, "for (;;) {}", **js)
    check("interrupted, and all is there", run("a", timeout=10, **js).main == "2")
    hang_up_after(0.3, "await new Promise(() => {})", **js)
    check("interrupted while it waits", run("a", timeout=10, **js).main == "2")
    check("leaves", run("process.exit(3)", **js).error["value"] == "3" and run("typeof a", **js).main == "undefined")


def bash():
    sh = {"language": "bash"}
    r = run("cd /tmp; V=3; f() { echo in f; }; echo $V; echo e >&2", **sh)
    check("output", r.out == "3\n" and r.err == "e\n" and r.count == 1 and not r.error, r)
    r = run("echo $V $PWD; f; alias g=f", **sh)
    check("state", r.out == "3 /tmp\nin f\n", r)
    r = run("echo before; (exit 7)", **sh)
    check("status", r.error and r.error["name"] == "ExitStatus" and r.error["value"] == "7" and r.out == "before\n", r)
    check("many lines", run("for i in 1 2; do\n  echo \"it's $i\"\ndone\ncat <<END\nx $V\nEND", **sh).out == "it's 1\nit's 2\nx 3\n")
    check("syntax", "unexpected" in run("if then", **sh).err)
    check("reads nothing", run("cat; read x; echo \"[$x]\"", timeout=10, **sh).out == "[]\n")
    check("variables", run("echo $A; printenv A", env_vars={"A": "it's $V"}, **sh).out == "it's $V\nit's $V\n")
    check("gone after", run("echo [${A-none}]", **sh).out == "[none]\n")
    check("put back", run("A=old; :", **sh).error is None and run("echo $A", env_vars={"A": "new"}, **sh).out == "new\n" and run("echo $A", **sh).out == "old\n")
    check("much", len(run("head -c 3000000 /dev/zero | tr '\\0' x", **sh).out) == 3000000)
    for loop in ("sleep 60", "while :; do :; done", "f2() { sleep 60; echo no; }; f2; echo no"):
        began = time.monotonic()
        hang_up_after(0.3, loop, **sh)
        r = run("echo $V", timeout=20, **sh)
        check(f"interrupted: {loop}", r.out == "3\n" and time.monotonic() - began < 5, r)
    r = run("echo bye; exit 4", **sh)
    check("leaves", r.out == "bye\n" and r.error["value"] == "4", r)
    check("a new one", run("echo [$V]", **sh).out == "[]\n")
    check("leaves well", run("exit 0", **sh).error is None)


def contexts():
    status, _, text = ask("GET", "/contexts")
    check("the default one is there", status == 200 and any(c["language"] == "python" for c in json.loads(text)), text)
    a, b = context(), context(language="python", cwd="/tmp")
    check("fields", a["language"] == "python" and a["cwd"] == "/home/user" and b["cwd"] == "/tmp" and a["id"] != b["id"], (a, b))
    run("v = 1", context_id=a["id"])
    check("apart", run("v", context_id=b["id"]).error["name"] == "NameError" and run("v", context_id=a["id"]).main == "1")
    check("directory", run("import os; os.getcwd()", context_id=b["id"]).main == "/tmp")
    check("listed", {a["id"], b["id"]} <= {c["id"] for c in json.loads(ask("GET", "/contexts")[2])})
    check("restart", ask("POST", f"/contexts/{a['id']}/restart")[::2] == (200, "null") and run("v", context_id=a["id"]).error["name"] == "NameError")
    check("and the count", run("1", context_id=a["id"]).count == 2)
    check("removed", ask("DELETE", f"/contexts/{b['id']}")[::2] == (200, "null"))
    for method, path in (("DELETE", f"/contexts/{b['id']}"), ("POST", f"/contexts/{b['id']}/restart")):
        status, reason, text = ask(method, path)
        check("gone", status == 404 and text == f"Context {b['id']} not found", text)
    check("gone for code", ask("POST", "/execute", {"code": "1", "context_id": b["id"]})[0] == 404)
    for language in ("js", "bash"):
        c = context(language=language, cwd="/tmp")
        code = {"js": "process.cwd()", "bash": "pwd"}[language]
        r = run(code, context_id=c["id"])
        check(f"{language} context", "/tmp" in (r.main or r.out), r)
        ask("DELETE", f"/contexts/{c['id']}")
    status, reason, text = ask("POST", "/contexts", {"cwd": "/nowhere"})
    check("no such directory", status == 400 and "'/nowhere'" in text and "'/nowhere'" in reason, text)
    for language in ("r", "java", "cobol"):
        r = run("1", language=language)
        check(f"{language} is not there", r.error["name"] == "LanguageNotAvailable" and f"'{language}'" in r.error["value"], r)
        status, reason, text = ask("POST", "/contexts", {"language": language})
        check(f"no context of {language}", status == 400 and f"'{language}'" in reason, text)
    r = run("let x: number = 1; x", language="typescript")
    check("typescript", r.main == "1" or "transpiler" in r.error["value"], r)
    # one stays busy while it is restarted
    got = []
    t = threading.Thread(target=lambda: got.append(run("import time; time.sleep(30)", context_id=a["id"])))
    t.start()
    time.sleep(0.5)
    ask("POST", f"/contexts/{a['id']}/restart")
    t.join(10)
    check("restart ends what runs", got and got[0].error["name"] == "ContextDied", got)
    check("and it works", run("2", context_id=a["id"]).main == "2")


def trouble():
    r = run("import os; import time; print('last words', flush=True); time.sleep(.3); os.kill(os.getpid(), 9)", timeout=10)
    check("death is an error", r.error["name"] == "ContextDied" and "SIGKILL" in r.error["value"] and "last words" in r.out, r)
    check("and not the end", run("1 + 1").main == "2")
    run("state = 5")
    began = time.monotonic()
    hang_up_after(0.5, "import time\nwhile True: time.sleep(0.1)")
    check("hanging up interrupts", run("state", timeout=20).main == "5" and time.monotonic() - began < 5)
    hang_up_after(0.5, "while True: pass")
    check("also what does not wait", run("state", timeout=20).main == "5")
    # next in line, and gone before it was their turn
    threads = [threading.Thread(target=hang_up_after, args=(0.3, "state += 100")) for _ in range(3)]
    slow = threading.Thread(target=lambda: run("import time; time.sleep(1.5)"))
    slow.start()
    time.sleep(0.3)
    for t in threads:
        t.start()
    for t in [*threads, slow]:
        t.join()
    check("who left the line does not run", run("state").main == "5")
    began = time.monotonic()
    r = run("import time; time.sleep(6); 'late'")
    check("keepalive", "keepalive" in r.types and r.main == "late", r)
    # a reader that takes its time slows the program, and nothing is lost
    s = socket.create_connection((host, int(port)), 60)
    body = json.dumps({"code": "for i in range(20000): print('x' * 1000, flush=i % 50 == 0)\nprint('end')"}).encode()
    s.sendall(b"POST /execute HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(3)
    size, data = 0, b""
    while b"end_of_execution" not in data:
        chunk = s.recv(1 << 16)
        if not chunk:
            break
        data = (data + chunk)[-2000:]
        size += chunk.count(b"x")
    s.close()
    check("a slow reader loses nothing", size >= 20_000_000 and b"end" in data, (size, data[-300:]))
    # what is no request
    for body, status in (("{", 400), ("[]", 400), ("{}", 400), ('{"code": 1}', 400), ('{"code": "1", "language": 3}', 400),
                         ('{"code": "1", "env_vars": {"A=B": "x"}}', 400), ('{"code": "1", "env_vars": {"A": 1}}', 400),
                         ('{"code": "1", "context_id": "x", "language": "python"}', 400), ("[" * 100000, 400)):
        c = http.client.HTTPConnection(host, int(port), timeout=10)
        c.request("POST", "/execute", body)
        check(f"refused: {body[:50]}", c.getresponse().status == status)
        c.close()
    check("no such page", ask("GET", "/x")[0] == 404 and ask("GET", "/health")[::2] == (200, '"OK"'))
    for raw, status in ((b"POST /execute HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"), (b"x" * 100000 + b"\r\n\r\n", b"431"),
                        (b"nonsense\r\n\r\n", b"400"), (b"POST /execute HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400")):
        s = socket.create_connection((host, int(port)), 10)
        s.sendall(raw)
        check(f"refused: {raw[:40]}", s.recv(100).split(b" ")[1:2] == [status])
        s.close()
    s = socket.create_connection((host, int(port)), 10)
    s.sendall(b"POST /execute HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"code\":\r\n4\r\n\"7\"}\r\n0\r\n\r\n")
    time.sleep(0.5)
    check("a body in chunks", b'"text": "7"' in s.recv(65536))
    s.close()


def load():
    ids = [context()["id"] for _ in range(8)]
    done = []

    def many(ident):
        for i in range(10):
            r = run(f"n = globals().get('n', 0) + 1; print(n); n", context_id=ident)
            done.append(r.main == str(i + 1) and r.out == f"{i + 1}\n")

    threads = [threading.Thread(target=many, args=(i,)) for i in ids]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("many at once", len(done) == 80 and all(done), done.count(False))
    # one context, many clients: one after another
    got = []
    run("order = []", context_id=ids[0])
    threads = [threading.Thread(target=lambda k=k: got.append(run(f"order.append({k}); import time; time.sleep(.01); order.append({k})", context_id=ids[0]))) for k in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("one at a time", run("len(order), all(order[i] == order[i + 1] for i in range(0, 40, 2))", context_id=ids[0]).main == "(40, True)", got[-1:])
    for i in ids:
        ask("DELETE", f"/contexts/{i}")


globals()[sys.argv[2]]()
sys.exit(1 if failures else 0)
