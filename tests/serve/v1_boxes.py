"""/v1: boxes, execs and terminals."""
import hashlib, json, os, threading, time

from kit import Api, Ws, b64, check, q, soon
from v1_kit import refused, test


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
    refused(api.get("/v1/box", 404), "not_found", "did you mean /v1/boxes?")
    refused(api.post("/v1/boxes/x/exec", {}, 404), "not_found", "did you mean /v1/boxes/x/execs?")
    refused(api.get("/v1/templats/a", 404), "not_found", "did you mean /v1/templates/a?")
    refused(api.post("/v1/boxes", {"template": "hots"}, 404), "not_found", "did you mean 'host'?")
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


@test
def advice_is_of_routes(api):
    b = api.box(name="adv")
    p = "/v1/boxes/" + b
    api.post(p + "/stop")
    refused(api.post("/v1/boxes/adv/execs", {"command": "true"}, 409), "conflict", "POST /v1/boxes/adv/start")
    api.post(p + "/start")
    api.post(p + "/pause")
    refused(api.post(p + "/execs", {"command": "true"}, 409), "conflict", "POST " + p + "/resume")
    api.post(p + "/resume")
    refused(api.post(p + "/execs/99/signal", {"signal": 15}, 404), "not_found", "GET ")
    refused(api.post("/v1/boxes", {"name": "adv"}, 409), "conflict", "DELETE /v1/boxes/adv")
    refused(api.post(p + "/rollback", {"ref": "nowhere"}, 404), "not_found", "GET " + p + "/checkpoints")


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
