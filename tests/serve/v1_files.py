"""/v1: files and history."""
import hashlib, io, os, tarfile, threading, time

import kit
from kit import b64, check, q, soon
from v1_kit import refused, test


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
    # who gave the box a time did not mean its copies to live for ever
    check(named["expires"] is None, "a deadline from nowhere %r" % named)
    until = api.call("PATCH", p, {"ttl_ms": 3600000, "on_expire": "stop", "idle_ms": 1800000}, want=200).json["expires"]
    late = api.post(p + "/fork", {}, 201).json["boxes"][0]
    check(until and (late["expires"], late["on_expire"], late["idle_ms"]) == (until, "stop", 1800000), "its time %r" % late)
    own = api.post(p + "/fork", {"ttl_ms": 60000, "on_expire": "delete"}, 201).json["boxes"][0]
    check(own["expires"] < until and own["on_expire"] == "delete" and own["idle_ms"] == 1800000, "a time of its own %r" % own)
    own = api.post(p + "/fork", {"expires": "2100-01-01T00:00:00Z"}, 201).json["boxes"][0]
    check(own["expires"].startswith("2100"), "a time of its own %r" % own)
    refused(api.post(p + "/fork", {"expires": "2100-01-01T00:00:00Z", "ttl_ms": 1}, 400), "invalid", "ttl_ms")
    refused(api.post(p + "/fork", {"on_expire": "stop"}, 400), "invalid", "on_expire")
    refused(api.post(p + "/fork", {"tlt_ms": 1}, 400), "invalid", "did you mean 'ttl_ms'")
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
def files_belong_to_the_box_user(api):
    b = api.box(user="1234")
    p = "/v1/boxes/%s/" % b
    api.sh(b, "mkdir -p /home/agent && chown 1234 /home/agent && echo agent:x:1234:1234::/home/agent:/bin/sh >>/etc/passwd && "
              "echo old >/etc/mine && chmod 600 /etc/mine", user="root")

    def put(path, data=b"x", more=""):
        return api.call("PUT", p + "files?path=" + q(path) + more, data=data, want=200).json
    check(put("/home/agent/a")["uid"] == 1234, "in his home")
    check(put("b")["uid"] == 1234 and api.sh(b, "cat /home/agent/b")["stdout"] == "x", "a relative path is in his home")
    check(api.call("GET", p + "files?path=b", want=200).body == b"x", "also to read")
    big = b"y" * (3 << 20)
    f = put("/etc/new", big)
    check(f["uid"] == 1234 and f["size"] == len(big), "where only root may write, it is his: %r" % f)
    f = put("/etc/deep/er", more="&parents=1")
    check(f["uid"] == 1234 and api.sh(b, "stat -c %u /etc/deep", user="root")["stdout"] == "1234\n", "and what is made for it")
    check(put("/etc/mine")["uid"] == 0, "what was there keeps its owner")
    check(put("/home/agent/r", more="&user=root")["uid"] == 0, "user is who is said")
    api.call("PUT", p + "files?path=" + q("/etc/fresh"), data=b"z", headers={"If-None-Match": "*"}, want=200)
    check(api.get(p + "files/stat?path=" + q("/etc/fresh")).json["uid"] == 1234, "If-None-Match")
    api.post(p + "files/mkdir", {"path": "d"}, 204)
    api.post(p + "files/mkdir", {"path": "/etc/e/f", "parents": True, "mode": "0750"}, 204)
    out = api.sh(b, "stat -c '%u %a' /home/agent/d /etc/e /etc/e/f", user="root")["stdout"]
    check(out.split()[0::2] == ["1234"] * 3 and out.split()[5] == "750", "directories: %r" % out)
