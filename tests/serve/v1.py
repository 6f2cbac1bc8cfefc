"""The routes of /v1, for real. v1.py NAME...: runs these tests against DEN_URL."""
import hashlib, io, json, os, subprocess, sys, tarfile, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kit
from kit import Api, Ws, b64, check, q, soon

tests = {}


def test(fn):
    tests[fn.__name__] = fn
    return fn


def refused(a, code, *words):
    e = a.json["error"]
    check(set(e) == {"code", "message", "next"} and e["code"] == code and e["next"], "error %r" % a)
    for w in words:
        check(w in e["message"], "%r does not say %r" % (e["message"], w))


# ---- boxes -----------------------------------------------------------------------------------------

@test
def life(api):
    b = api.post("/v1/boxes", {"name": "one", "env": {"A": "1"}, "labels": {"team": "x", "k": "ä=ö"}, "hostname": "h1",
                               "limits": {"memory": 256 << 20, "pids": 100}, "user": "root", "workdir": "/tmp"}, 201).json
    check(b["state"] == "running" and b["name"] == "one" and b["labels"] == {"team": "x", "k": "ä=ö"}, "box %r" % b)
    check(b["limits"]["memory"] == 256 << 20 and b["limits"]["pids"] == 100 and b["owner"]["org"] == "default", "box %r" % b)
    p = "/v1/boxes/" + b["id"]
    check(api.sh(b["id"], "echo $A $(hostname) $(pwd)")["stdout"] == "1 h1 /tmp\n", "env, hostname, workdir")
    check(api.get("/v1/boxes/one").json["id"] == b["id"], "by name")
    refused(api.post("/v1/boxes", {"name": "one"}, 409), "conflict")
    for step, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")):
        check(api.post(p + "/" + step).json["state"] == state and api.get(p).json["state"] == state, step)
    refused(api.post(p + "/start", want=409), "conflict")
    api.call("DELETE", p, want=204)
    refused(api.get(p, 404), "not_found")
    refused(api.call("DELETE", p, want=404), "not_found")


@test
def lists_by_pages_and_filters(api):
    ids = [api.box(labels={"n": str(i), "all": "yes"}) for i in range(5)]
    api.post("/v1/boxes/%s/stop" % ids[1])
    got, cursor = [], ""
    while cursor is not None:
        page = api.get("/v1/boxes?limit=2&label=all%3Dyes" + (cursor and "&cursor=" + q(cursor))).json
        check(len(page["boxes"]) <= 2, "a page of two")
        got += [x["id"] for x in page["boxes"]]
        cursor = page["next_cursor"]
        if len(got) == 2:
            api.call("DELETE", "/v1/boxes/" + ids[0], want=204)  # who goes between two pages shifts nothing
    check(got == ids, "pages %r, not %r" % (got, ids))
    check([x["id"] for x in api.get("/v1/boxes?state=stopped").json["boxes"]] == [ids[1]], "by state")
    check([x["id"] for x in api.get("/v1/boxes?label=n%3D3").json["boxes"]] == [ids[3]], "by label")
    refused(api.get("/v1/boxes?limit=0", 400), "invalid", "limit")
    refused(api.get("/v1/boxes?limit=x", 400), "invalid", "limit")
    refused(api.get("/v1/boxes?cursor=zzz", 400), "invalid", "cursor")


@test
def unknown_things_are_refused_with_the_nearest(api):
    refused(api.post("/v1/boxes", {"nmae": "x"}, 400), "invalid", "nmae", "name")
    refused(api.post("/v1/boxes", {"limits": {"memroy": 1}}, 400), "invalid", "memroy", "memory")
    refused(api.get("/v1/boxes?limti=1", 400), "invalid", "limti", "limit")
    refused(api.post("/v1/boxes", {"name": 1}, 400), "invalid", "name")
    refused(api.post("/v1/boxes", {"expires": "soon"}, 400), "invalid", "expires")
    refused(api.post("/v1/boxes", {"expires": "2030-01-01T00:00:00Z", "ttl_ms": 5}, 400), "invalid", "ttl_ms")
    refused(api.post("/v1/boxes", {"net": "none", "policy": {"version": 1}}, 400), "invalid", "policy")
    refused(api.post("/v1/boxes", {"labels": {"den.x": "1"}}, 400), "invalid", "den.")
    refused(api.post("/v1/boxes", {"template": "nowhere"}, 404), "not_found", "nowhere")
    refused(api.call("POST", "/v1/boxes", data=b'{"name": ', want=400), "invalid")
    refused(api.call("POST", "/v1/boxes", data=b'[1]', want=400), "invalid")
    refused(api.get("/v1/nothing", 404), "not_found")
    refused(api.call("PUT", "/v1/boxes", want=405), "invalid")
    refused(Api("den_" + "0" * 40).get("/v1/boxes", 401), "denied")
    refused(Api("").get("/v1/boxes", 401), "denied")
    check(api.get("/v1/boxes").json["boxes"] == [], "nothing was made")


@test
def labels_and_leases(api):
    b = api.box(ttl_ms=3600000, idle_ms=600000, on_idle="stop", labels={"a": "1"})
    p = "/v1/boxes/" + b
    x = api.get(p).json
    check(x["expires"] and x["on_expire"] == "delete" and x["idle_ms"] == 600000 and x["on_idle"] == "stop", "lease %r" % x)
    x = api.call("PATCH", p, {"labels": {"b": "2"}, "expires": "2100-01-02T03:04:05+01:00", "on_expire": "pause"}, 200).json
    check(x["labels"] == {"b": "2"} and x["expires"].startswith("2100-01-02T02:04:05") and x["on_expire"] == "pause", "patched %r" % x)
    x = api.post(p + "/lease", {"ttl_ms": 1000, "extend": True}).json
    check(x["expires"].startswith("2100"), "extend never shortens")
    x = api.post(p + "/lease", {"expires": None, "idle_ms": None}).json
    check(x["expires"] is None and x["idle_ms"] is None and x["labels"] == {"b": "2"}, "ended %r" % x)
    refused(api.call("PATCH", p, {"lables": {}}, 400), "invalid", "labels")
    refused(api.call("PATCH", p, {"labels": {"a": 1}}, 400), "invalid")
    api.post(p + "/lease", {"ttl_ms": 300, "on_expire": "stop"})
    soon(10, lambda: api.get(p).json["state"] == "stopped", "the end of the lease")


@test
def idempotent_create(api):
    h = {"Idempotency-Key": "k-1"}
    a = api.call("POST", "/v1/boxes", {"labels": {"x": "1"}, "env": {"A": "b"}}, 201, headers=h)
    again = api.call("POST", "/v1/boxes", {"env": {"A": "b"}, "labels": {"x": "1"}}, 201, headers=h)
    check(a.json["id"] == again.json["id"] and again.headers.get("idempotency-replayed") == "true", "the same box")
    check(a.json["labels"] == {"x": "1"} == again.json["labels"], "labels are the client's own")
    refused(api.call("POST", "/v1/boxes", {"labels": {"x": "2"}}, 409, headers=h), "conflict", "Idempotency-Key")
    refused(api.call("POST", "/v1/boxes", {"template": "nowhere"}, 404, headers={"Idempotency-Key": "k-2"}), "not_found")
    api.call("POST", "/v1/boxes", {}, 201, headers={"Idempotency-Key": "k-2"})  # what failed does not hold the key
    got = []

    def one():
        got.append(Api().call("POST", "/v1/boxes", {}, 201, headers={"Idempotency-Key": "k-3"}).json["id"])
    threads = [threading.Thread(target=one) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(len(got) == 8 and len(set(got)) == 1, "eight at once are one box: %r" % got)
    api.call("PATCH", "/v1/boxes/" + got[0], {"labels": {"new": "1"}}, 200)
    check(api.call("POST", "/v1/boxes", {}, 201, headers={"Idempotency-Key": "k-3"}).json["id"] == got[0], "after PATCH")
    api.call("DELETE", "/v1/boxes/" + got[0], want=204)
    refused(api.call("POST", "/v1/boxes", {}, 409, headers={"Idempotency-Key": "k-3"}), "conflict", "gone")
    check(len(api.get("/v1/boxes").json["boxes"]) == 2, "no more than were asked for")


@test
def figures(api):
    b = api.box(limits={"memory": 300 << 20})
    s = api.get("/v1/boxes/%s/stats" % b).json
    check(s["memory_limit"] in (300 << 20, None), "stats %r" % s)
    pid = api.post("/v1/boxes/%s/execs" % b, {"argv": ["sleep", "1234"], "detach": True}, 202).json["pid"]
    ps = api.get("/v1/boxes/%s/ps" % b).json["processes"]
    check(any(p["pid"] == pid and "sleep" in p["command"] for p in ps), "ps %r" % ps)


# ---- execs -----------------------------------------------------------------------------------------

@test
def exec_that_is_waited_for(api):
    b = api.box()
    e = "/v1/boxes/%s/execs" % b
    o = api.post(e, {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]}).json
    check((o["stdout"], o["stderr"], o["exited"], o["status"], o["reason"], o["encoding"], o["truncated"]) ==
          ("out\n", "err\n", True, 3, "", "utf-8", False) and o["out_bytes"] == 4, "outcome %r" % o)
    o = api.post(e, {"command": "printf '\\377\\000x'"}).json
    check(o["encoding"] == "base64" and o["stdout"] == b64(b"\xff\x00x") and o["stderr"] == "", "bytes %r" % o)
    o = api.post(e, {"command": "printf 'a\\000b'"}).json
    check(o["encoding"] == "utf-8" and o["stdout"] == "a\0b", "NUL %r" % o)
    check(api.sh(b, "cat", stdin="hällo")["stdout"] == "hällo", "stdin")
    big = os.urandom(3 << 20)
    o = api.sh(b, "sha256sum", stdin_b64=b64(big))
    check(o["stdout"].split()[0] == hashlib.sha256(big).hexdigest(), "3 MiB of stdin")
    o = api.sh(b, "head -c 20000000 /dev/zero | tr '\\0' x")
    check(o["truncated"] and len(o["stdout"]) == 8 << 20 and o["out_bytes"] == 20000000, "truncated")
    check(api.sh(b, "pwd; echo $Q; id -un", cwd="/usr", env={"Q": "1 2"}, user="root")["stdout"] == "/usr\n1 2\nroot\n", "cwd env user")
    o = api.sh(b, "sleep 100", None, timeout_ms=200)
    check(o["reason"] == "timeout" and not o["exited"], "timeout %r" % o)
    o = api.sh(b, "yes", None, max_output=100000)
    check(o["reason"] == "output", "output %r" % o)
    check(api.sh(b, "kill -9 $$", None)["status"] == 9, "signal")
    check(api.sh(b, "stty size", tty=True, rows=31, cols=77)["stdout"] == "31 77\r\n", "tty")
    refused(api.post(e, {"argv": ["/no/such"]}, 404), "not_found")
    refused(api.post(e, {"argv": ["/etc/passwd"]}, 403), "denied")
    refused(api.post(e, {"argv": ["a"], "command": "b"}, 400), "invalid", "argv", "command")
    refused(api.post(e, {}, 400), "invalid", "argv")
    refused(api.post(e, {"argv": []}, 400), "invalid")
    refused(api.post(e, {"command": "x", "comand": "y"}, 400), "invalid", "comand")
    refused(api.post(e, {"command": "x", "rows": 5}, 400), "invalid", "tty")
    refused(api.post(e, {"command": "x", "stdin": True}, 400), "invalid", "stdin")
    refused(api.post(e, {"command": "x", "stdin": "", "stdin_b64": ""}, 400), "invalid", "stdin")
    api.post("/v1/boxes/%s/stop" % b)
    refused(api.post(e, {"command": "true"}, 409), "conflict")


def gathered(events):
    """what a stream said: (outputs, exit, end)"""
    out, err, exit_, end, names = b"", b"", None, None, []
    import base64
    for name, _, data in events:
        names.append(name)
        if name == "stdout":
            out += base64.b64decode(data["data"])
        elif name == "stderr":
            err += base64.b64decode(data["data"])
        elif name == "exit":
            exit_ = data
        elif name == "end":
            end = data["reason"]
    return out, err, exit_, end, names


@test
def exec_as_events(api):
    b = api.box()
    e = "/v1/boxes/%s/execs" % b
    out, err, x, end, names = gathered(api.events("POST", e, {"command": "echo a; echo b >&2; printf '\\377'; exit 7"}))
    check((out, err, x["status"], end, names[0]) == (b"a\n\xff", b"b\n", 7, "exit", "started"), "events %r" % names)
    s = api.events("POST", e, {"argv": ["/no/such"]})
    check(s.status == 404 and json.loads(s.body())["error"]["code"] == "not_found", "not there")
    s = api.events("POST", e, {"command": "while read x; do echo got $x; done; echo end", "stdin": True})
    pid = s.until("started")[2]["pid"]
    check(api.call("POST", "%s/%d/stdin" % (e, pid), data=b"one\n", want=200).json == {"bytes": 4}, "stdin")
    check(s.until("stdout")[2]["data"] == b64(b"got one\n"), "what was fed")
    api.call("POST", "%s/%d/stdin?eof=1" % (e, pid), data=b"two\n", want=200)
    out, _, x, end, _ = gathered(s)
    check((out, x["status"], end) == (b"got two\nend\n", 0, "exit"), "the rest: %r" % out)
    refused(api.call("POST", "%s/%d/stdin" % (e, pid), data=b"x", want=(404, 409)), "conflict")
    closed = api.post(e, {"argv": ["sleep", "100"], "detach": True}, 202).json["pid"]
    refused(api.call("POST", "%s/%d/stdin" % (e, closed), data=b"x", want=409), "conflict", "stdin")
    # a box that goes ends its streams
    s = api.events("POST", e, {"command": "echo up; sleep 1000"})
    s.until("stdout")
    api.call("DELETE", "/v1/boxes/" + b, want=204)
    out, _, x, end, names = gathered(s)
    check(end == "box" and names[-1] == "end", "of a deleted box: %r" % names)


@test
def exec_that_goes_on(api):
    b = api.box()
    e = "/v1/boxes/%s/execs" % b
    x = api.post(e, {"command": "for i in 1 2 3; do echo line $i; done; read x; echo last $x; exit 5", "detach": True, "stdin": True,
                     "tag": "job"}, 202).json
    check(x["tag"] == "job", "detached %r" % x)
    info = api.get("%s/%d" % (e, x["pid"])).json
    check(info["running"] and info["tag"] == "job" and info["result"] is None, "info %r" % info)
    check(api.get(e + "/job").json["pid"] == x["pid"], "by tag")
    first = api.events("GET", "%s/%d/stream" % (e, x["pid"]))
    first.until("started")
    seen, last = b"", None
    import base64
    while seen.count(b"\n") < 3:
        _, last, d = first.until("stdout")
        seen += base64.b64decode(d["data"])
    first.close()
    second = api.events("GET", e + "/job/stream", headers={"Last-Event-ID": last})
    live = api.events("GET", e + "/job/stream?live=1")
    live.until("started")
    api.call("POST", "%s/%d/stdin" % (e, x["pid"]), data=b"word\n", want=200)
    out, _, res, end, _ = gathered(second)
    check((out, res["status"], end) == (b"last word\n", 5, "exit"), "what was not seen yet: %r" % out)
    out, _, res, end, _ = gathered(live)
    check((out, res["status"]) == (b"last word\n", 5), "live: %r" % out)
    out, _, res, _, _ = gathered(api.events("GET", e + "/%d/stream" % x["pid"]))
    check(out == b"line 1\nline 2\nline 3\nlast word\n" and res["status"] == 5, "all of it, after the end: %r" % out)
    info = api.get("%s/%d" % (e, x["pid"])).json
    check(not info["running"] and info["result"]["status"] == 5 and info["ended"], "info %r" % info)
    check([i["pid"] for i in api.get(e + "?limit=1").json["execs"]] and api.get(e).json["next_cursor"] is None, "list")
    refused(api.get(e + "/99999", 404), "not_found")
    refused(api.get(e + "/99999/stream", 404), "not_found")


@test
def exec_signals(api):
    b = api.box()
    e = "/v1/boxes/%s/execs" % b
    s = api.events("POST", e, {"command": "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.1; done"})
    pid = s.until("started")[2]["pid"]
    s.until("stdout")
    api.post("%s/%d/signal" % (e, pid), {"signal": "USR1", "scope": "process"}, 204)
    out, _, x, _, _ = gathered(s)
    check((out, x["status"]) == (b"caught\n", 9), "caught: %r" % out)
    pid = api.post(e, {"command": "sleep 1000 & sleep 1000", "detach": True}, 202).json["pid"]
    api.post("%s/%d/signal" % (e, pid), {"signal": 9}, 204)
    soon(5, lambda: "sleep" not in str(api.get("/v1/boxes/%s/ps" % b).json), "the whole tree")
    refused(api.post("%s/%d/signal" % (e, pid), {"signal": "NOPE"}, 400), "invalid", "NOPE")
    refused(api.post("%s/%d/signal" % (e, pid), {}, 400), "invalid", "signal")
    refused(api.post(e + "/99999/signal", {"signal": 9}, 404), "not_found")


@test
def exec_outlives_its_client_unless_told(api):
    b = api.box()
    e = "/v1/boxes/%s/execs" % b
    for query, stays in (("", True), ("?kill_on_close=1", False)):
        s = api.events("POST", e + query, {"command": "echo up; sleep 1000"})
        pid = s.until("started")[2]["pid"]
        s.until("stdout")
        s.close()
        time.sleep(0.3)
        if stays:
            check(api.get("%s/%d" % (e, pid)).json["running"], "it goes on")
        else:
            soon(10, lambda: not api.get("%s/%d" % (e, pid)).json["running"], "it is killed")


@test
def terminal(api):
    b = api.box()
    p = "/v1/boxes/%s/terminal" % b
    w = Ws(p + "?rows=20&cols=60&command=" + q("stty size; exec sh"))
    kind, m = w.next()
    check(kind == "text" and m["started"]["pid"] > 0, "started %r" % (m,))
    w.until(rb"20 60")
    w.send(b"echo mar''ker\n")
    w.until(rb"marker")
    w.say({"resize": {"rows": 33, "cols": 99}})
    w.send(b"stty size\n")
    w.until(rb"33 99")
    w.say({"nope": 1})
    while True:
        kind, m = w.next()
        if kind == "text":
            break
    check(m["error"]["code"] == "invalid", "a wrong message is told: %r" % m)
    # others watch and write
    other = Ws(p + "?live=1&attach=%d" % api.get("/v1/boxes/%s/execs" % b).json["execs"][-1]["pid"])
    other.next()
    other.send(b"echo se''cond\n")
    other.until(rb"second")
    w.until(rb"second")
    w.send(b"sleep 1000\n")
    time.sleep(0.2)
    w.send(b"\x03")
    w.send(b"exit 4\n")
    while True:
        m = w.next()
        if m and m[0] == "text" and "exit" in m[1]:
            break
    check(m[1]["exit"]["status"] == 4 and w.next() is None, "exit %r" % (m,))
    while True:
        m = other.next()
        if m and m[0] == "text" and "exit" in m[1]:
            break
    refused(api.get(p, 400), "invalid", "WebSocket")
    refused(api.get(p + "?row=1", 400), "invalid", "row")


@test
def websocket_of_an_exec(api):
    b = api.box()
    e = "/v1/boxes/%s/execs" % b
    pid = api.post(e, {"argv": ["cat"], "detach": True, "stdin": True}, 202).json["pid"]
    w = Ws("%s/%d/stream" % (e, pid))
    check(w.next()[1]["started"]["pid"] == pid, "started")
    data = os.urandom(300000)
    sender = threading.Thread(target=lambda: [w.send(data[i:i + 50000]) for i in range(0, len(data), 50000)])
    sender.start()
    got = b""
    while len(got) < len(data):
        m = w.next()
        check(m and m[0] == "bytes", "output %r" % (m,))
        got += m[1]
    sender.join()
    check(got == data, "bytes there and back")
    w.say({"eof": True})
    check(w.next()[1]["exit"]["status"] == 0, "exit")
    pid = api.post(e, {"argv": ["sleep", "1000"], "detach": True}, 202).json["pid"]
    w = Ws("%s/%d/stream?kill_on_close=1" % (e, pid))
    w.next()
    w.close()
    soon(10, lambda: not api.get("%s/%d" % (e, pid)).json["running"], "killed with its client")
    pid = api.post(e, {"argv": ["sh"], "tty": True, "detach": True, "stdin": True}, 202).json["pid"]
    api.post("%s/%d/resize" % (e, pid), {"rows": 11, "cols": 22}, 204)
    w = Ws("%s/%d/stream" % (e, pid))
    w.send(b"stty size\n")
    w.until(rb"11 22")


# ---- files -----------------------------------------------------------------------------------------

ODD = [b"/tmp/plain", "/tmp/ünï ☃".encode(), b"/tmp/new\nline\ttab", b"/tmp/bad\xff\xfe", b"/tmp/%2e%2e&a=b#?+", b"/tmp/" + b"n" * 255,
       b"/tmp/\x1b[31m\"quote'"]


@test
def files(api):
    b = api.box()
    f = "/v1/boxes/%s/files" % b
    for path in ODD:
        data = os.urandom(1000) + path
        r = api.call("PUT", f + "?path_b64=" + q(b64(path)), data=data, want=200).json
        check(r["size"] == len(data) and r["type"] == "file" and r["mode"] == "0644", "entry %r" % r)
        a = api.get(f + "?path_b64=" + q(b64(path)))
        check(a.body == data and a.headers["content-length"] == str(len(data)), "%r is the same" % path)
        check(a.headers["content-type"] == "application/octet-stream" and a.headers["x-content-type-options"] == "nosniff", "%r" % a.headers)
        utf8 = True
        try:
            path.decode()
        except UnicodeDecodeError:
            utf8 = False
        st = api.get(f + "/stat?path" + ("=" + q(path) if utf8 else "_b64=" + q(b64(path)))).json
        check(("path_b64" in st) == (not utf8), "b64 only where needed: %r" % st)
    names = api.get(f + "/list?path=/tmp").json["entries"]
    import base64
    got = {base64.b64decode(e["path_b64"]) if "path_b64" in e else e["path"].encode() for e in names}
    check(got == {p[5:] for p in ODD}, "list %r" % got)
    # ranges
    api.call("PUT", f + "?path=/tmp/r&mode=0600", data=b"0123456789", want=200)
    for head, want in (("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-3", b"789"), ("bytes=0-99", b"0123456789")):
        a = api.call("GET", f + "?path=/tmp/r", want=206, headers={"Range": head})
        check(a.body == want and a.headers["content-range"].endswith("/10"), "%s: %r" % (head, a))
    a = api.call("GET", f + "?path=/tmp/r", want=416, headers={"Range": "bytes=10-"})
    check(a.headers["content-range"] == "bytes */10", "416")
    api.call("GET", f + "?path=/tmp/r", want=200, headers={"Range": "lines=1-2"})
    check(api.call("PUT", f + "?path=/tmp/empty", data=b"", want=200).json["size"] == 0 and api.get(f + "?path=/tmp/empty").body == b"", "empty")
    check(b"MemTotal" in api.get(f + "?path=/proc/meminfo").body, "a file that says it is empty")
    # only where there is none
    refused(api.call("PUT", f + "?path=/tmp/r", data=b"x", want=409, headers={"If-None-Match": "*"}), "conflict")
    api.call("PUT", f + "?path=/tmp/fresh", data=b"x", want=200, headers={"If-None-Match": "*"})
    check(api.get(f + "?path=/tmp/r").body == b"0123456789", "untouched")
    # errors
    refused(api.call("PUT", f + "?path=/no/dir/x", data=b"x", want=404), "not_found")
    api.call("PUT", f + "?path=/no/dir/x&parents=1", data=b"x", want=200)
    refused(api.get(f + "?path=/none", 404), "not_found")
    refused(api.get(f + "?path=/tmp", 409), "conflict", "directory")
    refused(api.get(f, 400), "invalid", "path")
    refused(api.get(f + "?path=a&path_b64=YQ==", 400), "invalid")
    refused(api.get(f + "?path_b64=***", 400), "invalid")
    refused(api.get(f + "?pth=/x", 400), "invalid", "path")


@test
def file_changes(api):
    b = api.box()
    f = "/v1/boxes/%s/files" % b
    api.post(f + "/mkdir", {"path": "/w/a/b", "parents": True, "mode": "0750"}, 204)
    api.call("PUT", f + "?path=/w/a/b/x", data=b"1", want=200)
    api.post(f + "/move", {"from": "/w/a/b/x", "to": "/w/y"}, 204)
    api.call("PUT", f + "?path=/w/z", data=b"2", want=200)
    refused(api.post(f + "/move", {"from": "/w/z", "to": "/w/y", "no_replace": True}, 409), "conflict")
    api.post(f + "/chmod", {"path": "/w/y", "mode": "0711"}, 204)
    api.post(f + "/chown", {"path": "/w/y", "owner": "1:2"}, 204)
    st = api.get(f + "/stat?path=/w/y").json
    check((st["mode"], st["uid"], st["gid"]) == ("0711", 1, 2), "stat %r" % st)
    api.sh(b, "ln -s y /w/link")
    check(api.get(f + "/stat?path=/w/link").json["target"] == "y", "link")
    check(api.get(f + "/stat?path=/w/link&follow=1").json["type"] == "file", "followed")
    deep = [e["path"] for e in api.get(f + "/list?path=/w&depth=5").json["entries"]]
    check(deep == ["a", "a/b", "link", "y", "z"], "list %r" % deep)
    refused(api.call("DELETE", f + "?path=/w", want=409), "conflict")
    api.call("DELETE", f + "?path=/w&recursive=1", want=204)
    refused(api.call("DELETE", f + "?path=/w", want=404), "not_found")
    api.call("DELETE", f + "?path=/w&missing_ok=1", want=204)
    refused(api.post(f + "/mkdir", {}, 400), "invalid", "path")
    refused(api.post(f + "/chmod", {"path": "/tmp"}, 400), "invalid", "mode")
    refused(api.post(f + "/move", {"from": "/a", "too": "/b"}, 400), "invalid", "too")
    odd = b64(b"/tmp/\xff")
    api.post(f + "/mkdir", {"path_b64": odd}, 204)
    api.post(f + "/move", {"from_b64": odd, "to": "/tmp/even"}, 204)
    check(api.get(f + "/stat?path=/tmp/even").json["type"] == "directory", "moved")


@test
def tar(api):
    b = api.box()
    t = "/v1/boxes/%s/tar" % b
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as out:
        for i in range(50):
            m = tarfile.TarInfo("d/f%d" % i)
            m.size = 10000
            out.addfile(m, io.BytesIO(bytes([i]) * 10000))
    api.call("PUT", t + "?path=/srv/new&parents=1", data=raw.getvalue(), want=204)
    a = api.get(t + "?path=/srv/new&contents=1")
    check(a.headers["content-type"] == "application/x-tar", "type")
    with tarfile.open(fileobj=io.BytesIO(a.body)) as back:
        names = [m.name for m in back if m.isfile()]
        check(sorted(names) == sorted("d/f%d" % i for i in range(50)), "names %r" % names[:5])
        check(back.extractfile("d/f7").read() == b"\7" * 10000, "content")
    refused(api.call("PUT", t + "?path=/tmp", data=b"this is no tar" * 100, want=400), "invalid")
    refused(api.get(t + "?path=/none", 404), "not_found")


@test
def large_files(api):
    """64 MiB through a server that keeps its memory"""
    b = api.box()
    f = "/v1/boxes/%s/files?path=/tmp/big" % b
    pid = int(os.environ["SERVER_PID"])

    def rss():
        return int(next(l for l in open("/proc/%d/status" % pid) if l.startswith("VmRSS")).split()[1])
    before, peak, stop = rss(), [0], threading.Event()

    def look():
        while not stop.wait(0.02):
            peak[0] = max(peak[0], rss())
    t = threading.Thread(target=look)
    t.start()
    block = os.urandom(1 << 20)
    want = hashlib.sha256()

    def body():
        for _ in range(64):
            want.update(block)
            yield block
    r = api.raw("PUT", f, body(), {"Content-Length": str(64 << 20)})
    check(r.status == 200 and r.json["size"] == 64 << 20, "put %r" % r)
    check(api.sh(b, "sha256sum /tmp/big")["stdout"].split()[0] == want.hexdigest(), "what is in the box")
    r = api.raw("PUT", f.replace("big", "chunked"), body(), {"Transfer-Encoding": "chunked"})
    check(r.status == 200 and r.json["size"] == 64 << 20, "chunked put %r" % r)
    api.raw("GET", f)
    # a reader that does not read holds nothing
    import socket
    s = socket.create_connection(kit.address())
    s.sendall(("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % (f, api.key)).encode())
    time.sleep(1)
    s.close()
    a = api.get(f)
    check(len(a.body) == 64 << 20 and hashlib.sha256(a.body).digest() == hashlib.sha256(block * 64).digest(), "get")
    stop.set()
    t.join()
    check(peak[0] - before < 24 << 10, "the server grew from %d to %d KiB" % (before, peak[0]))


@test
def watch(api):
    b = api.box()
    api.sh(b, "mkdir -p /w/sub")
    s = api.events("GET", "/v1/boxes/%s/files/watch?path=/w&recursive=1" % b)
    check(next(s)[0] == "watching", "first")
    api.sh(b, "echo 1 > /w/sub/f; printf x > \"/w/$(printf 'o\\377')\"; rm /w/sub/f")
    seen = []
    while not any(e["event"] == "remove" for e in seen):
        name, _, data = next(s)
        check(name == "change", "event %r" % name)
        seen.append(data)
    check({"create", "write", "remove"} <= {e["event"] for e in seen if e["path"] == "sub/f"}, "seen %r" % seen)
    check(any(e.get("path_b64") == b64(b"o\xff") for e in seen), "odd name %r" % seen)
    api.post("/v1/boxes/%s/stop" % b, {"grace_ms": 100})
    check(s.until("end")[2]["reason"] == "box", "end")
    s = api.events("GET", "/v1/boxes/%s/files/watch?path=/none" % b)
    check(s.status in (404, 409), "of nothing: %d" % s.status)


# ---- history ---------------------------------------------------------------------------------------

@test
def history(api):
    b = api.box(history="manual")
    p = "/v1/boxes/" + b
    put = lambda x, d: api.call("PUT", p + "/files?path=" + q(x), data=d, want=200)
    put("/f", b"one\n")
    n = api.post(p + "/checkpoints", {"message": "first"}, 201).json["number"]
    api.call("PUT", p + "/tags/good", {"ref": str(n)}, 204)
    put("/f", b"two\n")
    put("/g", b"new\n")
    log = api.get(p + "/checkpoints").json["checkpoints"]
    c = next(c for c in log if c["number"] == n)
    check(c["message"] == "first" and c["tags"] == ["good"] and c["kind"] == "manual" and c["head"], "log %r" % c)
    changes = {c["path"]: c["kind"] for c in api.get(p + "/diff?from=good").json["changes"]}
    check(changes.get("/f") == "modified" and changes.get("/g") == "added", "diff %r" % changes)
    a = api.get(p + "/diff?from=good&format=text")
    check(b"-one" in a.body and b"+two" in a.body and a.headers["content-type"].startswith("text/x-diff"), "text %r" % a)
    a = api.get(p + "/diff?from=good&format=tar")
    check({m.name.lstrip("./") for m in tarfile.open(fileobj=io.BytesIO(a.body))} >= {"f", "g"}, "tar")
    refused(api.get(p + "/diff?format=x", 400), "invalid", "format")
    before = api.post(p + "/rollback", {"ref": "good"}).json["before"]
    check(api.get(p + "/files?path=/f").body == b"one\n", "rolled back")
    refused(api.get(p + "/files?path=/g", 404), "not_found")
    api.post(p + "/rollback", {"ref": str(before)})
    check(api.get(p + "/files?path=/g").body == b"new\n", "and forward again")
    refused(api.post(p + "/rollback", {"ref": "nowhere"}, 404), "not_found")
    refused(api.post(p + "/rollback", {}, 400), "invalid", "ref")
    api.call("DELETE", p + "/tags/good", want=204)
    refused(api.call("DELETE", p + "/tags/good", want=404), "not_found")
    check(api.post(p + "/prune", {"all": True}).json["removed"] >= 1, "pruned")
    one = api.get(p + "/checkpoints?limit=1").json
    check(len(one["checkpoints"]) == 1 and one["next_cursor"], "pages")


@test
def undo(api):
    b = api.box()
    p = "/v1/boxes/" + b
    api.sh(b, "echo 1 > /f")
    soon(5, lambda: len(api.get(p + "/checkpoints").json["checkpoints"]) >= 2, "a checkpoint by itself")
    api.sh(b, "echo 2 > /f")
    soon(5, lambda: len(api.get(p + "/checkpoints").json["checkpoints"]) >= 3, "another")
    api.post(p + "/undo", {})
    check(api.get(p + "/files?path=/f").body == b"1\n", "undone")
    refused(api.post(p + "/undo", {"turns": 0}, 400), "invalid", "turns")


@test
def forks_and_merges(api):
    b = api.box(history="manual", labels={"a": "1"})
    p = "/v1/boxes/" + b
    put = lambda box, x, d: api.call("PUT", "/v1/boxes/%s/files?path=%s" % (box, q(x)), data=d, want=200)
    put(b, "/f", b"base\n")
    forks = api.post(p + "/fork", {"count": 3}, 201).json["boxes"]
    check(len({f["id"] for f in forks} | {b}) == 4 and all(f["state"] == "running" for f in forks), "forks")
    named = api.post(p + "/fork", {"name": "twin"}, 201).json["boxes"][0]
    check(named["name"] == "twin" and named["owner"]["org"] == "default", "named %r" % named)
    refused(api.post(p + "/fork", {"name": "x", "count": 2}, 400), "invalid", "name")
    refused(api.post(p + "/fork", {"name": "twin"}, 409), "conflict")
    one, two = forks[0]["id"], forks[1]["id"]
    put(one, "/g", b"from one\n")
    m = api.post(p + "/merge", {"from": one}).json
    check(m["taken"] >= 1 and m["conflicts"] == 0 and m["checkpoint"] is not None, "merge %r" % m)
    check(api.get(p + "/files?path=/g").body == b"from one\n", "merged")
    put(two, "/f", b"theirs\n")
    put(b, "/f", b"ours\n")
    a = api.post(p + "/merge", {"from": two}, 409).json
    check(a["error"]["code"] == "conflict" and [c["path"] for c in a["conflicts"]] == ["/f"], "conflict %r" % a)
    check(api.get(p + "/files?path=/f").body == b"ours\n", "nothing was applied")
    api.post(p + "/merge", {"from": two, "rules": [{"path": "/f", "take": "theirs"}]})
    check(api.get(p + "/files?path=/f").body == b"theirs\n", "by rule")
    refused(api.post(p + "/merge", {"from": two, "rules": [{"take": "both"}]}, 400), "invalid", "rules")
    refused(api.post(p + "/merge", {"from": "b-" + "0" * 18}, 404), "not_found")
    n = api.post(p + "/checkpoints", {}, 201).json["number"]
    put(b, "/late", b"x")
    old = api.post(p + "/fork", {"ref": str(n)}, 201).json["boxes"][0]["id"]
    refused(api.get("/v1/boxes/%s/files?path=/late" % old, 404), "not_found")


@test
def templates(api):
    b = api.box(history="manual")
    api.sh(b, "echo made > /made")
    t = api.post("/v1/boxes/%s/commit" % b, {"name": "mine", "env": {"T": "1"}, "workdir": "/usr", "detail": "a test"}, 201).json
    check(t["name"] == "mine" and len(t["id"]) == 64, "template %r" % t)
    info = api.get("/v1/templates/mine").json
    check(info["workdir"] == "/usr" and info["env"].get("T") == "1" and info["id"] == t["id"], "info %r" % info)
    check(api.post("/v1/templates/mine/tags", {"name": "again"}, 201).json == {"name": "again"}, "tag")
    names = [x["name"] for x in api.get("/v1/templates").json["templates"]]
    check({"mine", "again", "host"} <= set(names), "names %r" % names)
    c = api.box(template="again")
    check(api.sh(c, "cat /made; pwd; echo $T")["stdout"] == "made\n/usr\n1\n", "a box of it")
    api.call("DELETE", "/v1/boxes/" + c, want=204)
    api.call("DELETE", "/v1/templates/again", want=204)
    api.call("DELETE", "/v1/templates/mine", want=204)
    refused(api.get("/v1/templates/mine", 404), "not_found")
    refused(api.call("DELETE", "/v1/templates/mine", want=404), "not_found")


# ---- network ---------------------------------------------------------------------------------------

@test
def policies(api):
    b = api.box(policy={"version": 1, "allow": ["example.com:443"], "identity": {"audiences": ["den-test"]}})
    p = "/v1/boxes/" + b
    x = api.get(p + "/policy").json
    check(x["policy"]["allow"] == ["example.com:443"] and x["name"] is None, "policy %r" % x)
    g = api.post(p + "/policy/allow", {"host": "b.example", "port": 8443}).json["generation"]
    check(g > x["generation"], "a new generation")
    check("b.example:8443" in api.get(p + "/policy").json["policy"]["allow"], "allowed")
    refused(api.call("PUT", p + "/policy", {"policy": {"version": 1}, "generation": g - 1}, 409), "conflict")
    r = api.call("PUT", p + "/policy", {"policy": {"version": 1, "allow": ["c.example"], "identity": {"audiences": ["den-test"]}}, "generation": g}, 200).json
    check(r["generation"] > g and r["ended"] == 0, "put %r" % r)
    refused(api.call("PUT", p + "/policy", {"policy": {"version": 1, "alow": []}}, 400), "invalid", "alow")
    refused(api.call("PUT", p + "/policy", {"policy": {"version": 1, "allow": ["host:22"]}}, 403), "denied")
    refused(api.call("PUT", p + "/policy", {"policy": {}, "name": "x"}, 400), "invalid")
    refused(api.post(p + "/policy/allow", {"host": "a b"}, 400), "invalid", "host")
    # many at the same time are all kept
    ts = [threading.Thread(target=lambda i=i: Api().post(p + "/policy/allow", {"host": "h%d.example" % i})) for i in range(10)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    allow = str(api.get(p + "/policy").json["policy"]["allow"])
    check(all("h%d.example" % i in allow for i in range(10)), "all ten: %s" % allow)
    # stored ones
    api.call("PUT", "/v1/policies/web", {"version": 1, "allow": ["w.example"]}, 204)
    names = api.get("/v1/policies").json["policies"]
    check(names == [{"name": "web"}], "names %r" % names)
    check(api.get("/v1/policies/web").json["policy"]["allow"] == ["w.example"], "stored")
    api.call("PUT", p + "/policy", {"name": "web"}, 200)
    check(api.get(p).json["policy_name"] == "web", "followed")
    refused(api.call("DELETE", "/v1/policies/web", want=409), "conflict")
    api.call("PUT", p + "/policy", {"policy": {"version": 1, "identity": {"audiences": ["den-test"]}}}, 200)
    api.call("DELETE", "/v1/policies/web", want=204)
    refused(api.get("/v1/policies/web", 404), "not_found")
    kinds = [e["kind"] for e in api.get(p + "/journal?kind=policy&count=1000").json["entries"]]
    check(kinds and set(kinds) == {"policy"}, "journal %r" % kinds)
    t = api.post(p + "/token", {"audience": "den-test"}, 201).json["token"]
    check(t.count(".") == 2, "a token")
    refused(api.post(p + "/token", {"audience": "other"}, 403), "denied")


@test
def ports(api):
    b = api.box()
    p = "/v1/boxes/%s/ports" % b
    x = api.call("PUT", p + "/8080", {"public": True}, 200).json
    check(x["port"] == 8080 and x["public"] and "8080-" in x["url"] and x["token"] is None, "port %r" % x)
    x = api.call("PUT", p + "/8081", {"public": False}, 200).json
    check(len(x["token"]) == 40, "token %r" % x)
    check([x["port"] for x in api.get(p).json["ports"]] == [8080, 8081], "list")
    api.call("DELETE", p + "/8080", want=204)
    check([x["port"] for x in api.get(p).json["ports"]] == [8081], "list")
    refused(api.call("PUT", p + "/0", {"public": True}, 400), "invalid", "port")
    refused(api.call("PUT", p + "/99999", {"public": True}, 400), "invalid", "port")
    refused(api.call("PUT", p + "/80", {}, 400), "invalid", "public")


# ---- organisation ----------------------------------------------------------------------------------

@test
def secrets(api):
    api.call("PUT", "/v1/secrets/API_KEY", {"value": "value-one"}, 204)
    api.call("PUT", "/v1/secrets/BYTES", {"value_b64": b64(b"\xfe\xff" * 8)}, 204)
    s = api.get("/v1/secrets").json["secrets"]
    check([x["name"] for x in s] == ["API_KEY", "BYTES"] and "value-one" not in str(s), "secrets %r" % s)
    refused(api.call("PUT", "/v1/secrets/9bad", {"value": "long enough"}, 400), "invalid")
    refused(api.call("PUT", "/v1/secrets/SHORT", {"value": "x"}, 400), "invalid", "bytes")
    refused(api.call("PUT", "/v1/secrets/X", {}, 400), "invalid", "value")
    api.call("DELETE", "/v1/secrets/BYTES", want=204)
    refused(api.call("DELETE", "/v1/secrets/BYTES", want=404), "not_found")


@test
def keys_and_organisations(api):
    k = api.post("/v1/keys", {"org": "acme", "name": "ci", "quota": {"boxes": 1}}, 201).json
    check(k["org"] == "acme" and k["quota"]["boxes"] == 1 and k["key"][:4] in ("den_", "e2b_"), "key %r" % k)
    listed = api.get("/v1/keys?org=acme").json["keys"]
    check([x["id"] for x in listed] == [k["id"]] and "key" not in listed[0], "list %r" % listed)
    acme = Api(k["key"])
    who = acme.get("/v1/whoami").json
    check(who["org"] == "acme" and not who["admin"] and who["key"] == k["id"], "whoami %r" % who)
    refused(acme.get("/v1/keys", 403), "denied")
    refused(acme.post("/v1/keys", {}, 403), "denied")
    ours = api.box(name="ours")
    api.call("PUT", "/v1/secrets/OURS", {"value": "our value"}, 204)
    api.call("PUT", "/v1/policies/ours", {"version": 1}, 204)
    check(acme.get("/v1/boxes").json["boxes"] == [] and acme.get("/v1/secrets").json["secrets"] == [], "nothing of others")
    check(acme.get("/v1/policies").json["policies"] == [], "no policies of others")
    for what in ("/v1/boxes/" + ours, "/v1/boxes/ours", "/v1/boxes/%s/files?path=/etc/passwd" % ours, "/v1/policies/ours", "/v1/boxes/%s/execs" % ours):
        refused(acme.get(what, 404), "not_found")
    refused(acme.post("/v1/boxes/%s/execs" % ours, {"command": "true"}, 404), "not_found")
    refused(acme.call("DELETE", "/v1/boxes/" + ours, want=404), "not_found")
    refused(acme.call("DELETE", "/v1/secrets/OURS", want=404), "not_found")
    theirs = acme.box(name="ours", policy={"version": 1, "identity": {"audiences": ["a"]}})  # names are each organisation's own
    check(acme.get("/v1/boxes/ours").json["id"] == theirs and api.get("/v1/boxes/ours").json["id"] == ours, "names")
    check(acme.get("/v1/boxes/ours").json["name"] == "ours", "the name as they see it")
    check(acme.get("/v1/boxes/ours/policy").json["policy"]["identity"]["org"] == "acme", "tokens say who they are")
    refused(acme.call("PUT", "/v1/boxes/ours/policy", {"policy": {"version": 1, "identity": {"org": "default"}}}, 403), "denied")
    acme.call("PUT", "/v1/secrets/OURS", {"value": "their value"}, 204)
    acme.call("PUT", "/v1/boxes/ours/policy", {"policy": {"version": 1, "secrets": [{"name": "OURS", "host": "x.example", "in": ["bearer"]}]}}, 200)
    check(acme.get("/v1/boxes/ours/policy").json["policy"]["secrets"][0]["name"] == "OURS", "secrets by their own names")
    refused(acme.call("PUT", "/v1/boxes/ours/policy", {"policy": {"version": 1, "secrets": [{"name": "o.x.OURS", "host": "x.example", "in": ["bearer"]}]}}, 400), "invalid")
    refused(acme.post("/v1/boxes", {}, (403, 429)), "limit")
    reader = Api(api.post("/v1/keys", {"org": "acme", "scopes": ["read"]}, 201).json["key"])
    reader.get("/v1/boxes/ours")
    refused(reader.call("DELETE", "/v1/boxes/ours", want=403), "denied")
    refused(reader.post("/v1/boxes/ours/execs", {"command": "true"}, 403), "denied")
    refused(reader.get("/v1/secrets", 403), "denied")
    refused(api.post("/v1/keys", {"scopes": ["all"]}, 400), "invalid", "all")
    api.call("DELETE", "/v1/keys/" + k["id"], want=204)
    refused(acme.get("/v1/boxes", 401), "denied")
    refused(api.call("DELETE", "/v1/keys/nope", want=404), "not_found")


@test
def events(api):
    s = api.events("GET", "/v1/events")
    b = api.box(name="watched")
    check(s.until("box.created")[2]["box"] == b, "created")
    only = api.events("GET", "/v1/events?box=watched&kind=exec.,file.changed")
    api.sh(b, "true")
    name, number, e = only.until("exec.started")
    check(e["box"] == b and e["kind"] == name and str(e["id"]) == number and e["data"]["argv"][0] == "/bin/sh", "event %r" % e)
    check(only.until("exec.ended")[2]["data"]["status"] == 0, "ended")
    only.close()
    api.call("PUT", "/v1/boxes/%s/files?path=/f" % b, data=b"x", want=200)
    api.sh(b, "exit 3", 3)
    back = api.events("GET", "/v1/events?box=%s&kind=exec.,file.changed" % b, headers={"Last-Event-ID": number})
    kinds = [next(back)[0] for _ in range(4)]
    check(kinds[0] == "exec.ended" and kinds.count("file.changed") >= 1 and kinds[-1] != "lost", "what was missed: %r" % kinds)
    refused(api.call("GET", "/v1/events", want=400, headers={"Last-Event-ID": "x"}), "invalid", "Last-Event-ID")
    old = api.events("GET", "/v1/events", headers={"Last-Event-ID": "5"})
    name, _, e = next(old)
    check(name == "lost" and e["data"] == {"count": None}, "from before this server: %r" % e)
    acme = Api(api.post("/v1/keys", {"org": "other"}, 201).json["key"])
    theirs = acme.events("GET", "/v1/events", timeout=2)
    api.sh(b, "true")
    mine = acme.box()
    check(theirs.until("box.created")[2]["box"] == mine, "events of others are not told")
    api.call("DELETE", "/v1/boxes/" + b, want=204)
    s.until("box.deleted")
    acme.call("DELETE", "/v1/boxes/" + mine, want=204)


@test
def events_of_keepers(api):
    """what keepers send: a flood, for a reader that does not read; and what is none of theirs"""
    import socket
    feed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    feed.connect(os.environ["DEN_STATE"] + "/serve/feed.sock")
    s = api.events("GET", "/v1/events?kind=net.")
    other = Api(api.post("/v1/keys", {"org": "third"}, 201).json["key"]).events("GET", "/v1/events?kind=net.")
    for junk in (b"", b"{", b"[]", b"null", b"[" * 30000, b'{"kind":5}', b'{"kind":"box.exploded"}', b'{"kind":"net.denied","box":"' + b"b" * 500 + b'"}',
                 b'{"kind":"net.denied","box":"\xff"}', b'{"kind":"box.created","data":[1]}' + b" " * 60000):
        feed.send(junk)
    for i in range(30000):
        feed.send(json.dumps({"kind": "net.denied", "box": "b-" + "x" * 18, "owner": "default/k", "time": 1, "data": {"i": i, "pad": "x" * 500}}).encode())
    feed.send(json.dumps({"kind": "net.denied", "box": "b-" + "y" * 18, "owner": "third/k", "data": {"i": 30000}}).encode())
    lost, seen, last = 0, 0, None
    while last != 30000:
        name, number, e = next(s)
        if name == "lost":
            lost += e["data"]["count"]
        elif e["data"]:
            check(last is None or e["data"]["i"] > last, "in order")
            seen, last = seen + 1, e["data"]["i"]
    check(lost + seen == 30001 and lost > 0, "%d seen, %d lost" % (seen, lost))
    name, _, e = next(other)  # it lost nothing of its own
    check(e["data"] == {"i": 30000}, "each organisation its own: %r" % e)


@test
def usage(api):
    b = api.box(name="busy")
    api.post("/v1/boxes/%s/execs" % b, {"command": "timeout 20 sh -c 'while :; do :; done'", "detach": True}, 202)

    def row():
        rows = api.get("/v1/usage?box=" + b).json["usage"]
        return rows and rows[0]
    r = soon(60, lambda: row() and row()["cpu_ms"] > 500 and row(), "usage")
    check(r["name"] == "busy" and r["org"] == "default" and r["wall_ms"] > 3000 and r["memory_mib_s"] >= 0, "row %r" % r)
    for by in ("key", "org", "hour"):
        rows = api.get("/v1/usage?by=" + by).json["usage"]
        check(rows and max(x["cpu_ms"] for x in rows) >= r["cpu_ms"], "%s: %r" % (by, rows))
    check(api.get("/v1/usage?to=2001-01-01T00:00:00Z").json["usage"] == [], "none then")
    refused(api.get("/v1/usage?by=day", 400), "invalid", "by")
    refused(api.get("/v1/usage?from=yesterday", 400), "invalid")


def main():
    names = sys.argv[1:] or list(tests)
    for n in names:
        began = time.monotonic()
        api = Api()
        tests[n](api)
        for b in api.get("/v1/boxes?limit=1000").json["boxes"]:
            api.call("DELETE", "/v1/boxes/" + b["id"], want=204)
        print("%s: %.1f s" % (n, time.monotonic() - began))


if __name__ == "__main__":
    main()
