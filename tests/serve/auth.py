"""Every route of every table, from den-serve --routes: without a key, with a revoked one, with one that lacks the scope,
with one of another organisation, and envd's with tokens of other boxes. Usage: auth.py DEN URL ADMIN-KEY STATE"""
import hmac
import http.client
import json
import os
import re
import subprocess
import sys
import urllib.parse

den, url, admin, state = sys.argv[1:]
host = urllib.parse.urlparse(url).netloc
bad = []

# What anybody may ask, each looked at: it tells nothing of boxes, or asks for a token of its own.
OPEN = {"GET /", "GET /healthz", "GET /readyz", "GET /metrics", "GET /v1/openapi.yaml", "GET /ui", "GET /ui/",
        "GET /ui/session", "POST /ui/session", "DELETE /ui/session", "GET /ui/{version}/{name}", "GET /health"}
# These carry a token of their own, in the path or as a bearer.
OWN_TOKEN = {"PUT /templates/uploads/{org}/{hash}/{token}"}


def call(method, path, key=None, body=None, headers=None):
    c = http.client.HTTPConnection(host, timeout=20)
    h = dict(headers or {})
    if key:
        h["X-API-Key"] = key
    if body is not None:
        h.setdefault("Content-Type", "application/json")
    try:
        c.request(method, path, body=body, headers=h)
        r = c.getresponse()
        if r.getheader("Content-Type", "").startswith("text/event-stream"):
            return r.status, b""
        return r.status, r.read(200000)
    except (OSError, http.client.HTTPException) as e:
        return 0, str(e).encode()
    finally:
        c.close()


def key(*options):
    return subprocess.run([den, "key", "create", "--json", *options], check=True, stdout=subprocess.PIPE, text=True).stdout


def make_box(k):
    status, body = call("POST", "/v1/boxes", k, "{}")
    assert status == 201, (status, body)
    return json.loads(body)["id"]


def token(what, box):
    secret = open(state + "/serve/secret", "rb").read()
    return hmac.new(secret, f"{what}/{box}".encode(), "sha256").hexdigest()[:40]


def want(what, got, *allowed):
    if got[0] not in allowed:
        bad.append(f"{what}: {got[0]} {got[1][:150]!r}, not {allowed}")


ka = json.loads(key("--org", "aa"))
kb = json.loads(key("--org", "bb"))
reads = json.loads(key("--org", "aa", "--scope", "read"))
seals = json.loads(key("--org", "aa", "--scope", "secrets"))
gone = json.loads(key("--org", "aa"))
subprocess.run([den, "key", "revoke", gone["id"]], check=True)
one, two = make_box(ka["key"]), make_box(kb["key"])
status, before = call("GET", f"/v1/boxes/{one}", ka["key"])
assert status == 200
status, log_before = call("GET", f"/v1/boxes/{one}/checkpoints", ka["key"])

BODIES = {
    "lease": {"expires": None}, "execs": {"argv": ["true"]}, "signal": {"signal": 9}, "resize": {"rows": 1, "cols": 1},
    "rollback": {"ref": "0"}, "undo": {"turns": 1}, "merge": {"from": two}, "commit": {"name": "stolen"},
    "allow": {"host": "example.com", "port": 443}, "policy": {"policy": {}}, "token": {"audience": "https://x"},
    "{port}": {"public": True}, "{tag}": {"ref": "0"}, "mkdir": {"path": "/tmp/evil"}, "move": {"from": "/etc/passwd", "to": "/x"},
    "chmod": {"path": "/tmp", "mode": "0"}, "chown": {"path": "/tmp", "owner": "1"}, "timeout": {"timeout": 1},
    "refreshes": {"duration": 1}, "connect": {"timeout": 1}, "resume": {"timeout": 1}, "fork": {}, "network": {},
}


def concrete(path, box):
    sandbox = "i" + box[2:]
    path = path.replace("/v1/boxes/{box}", f"/v1/boxes/{box}").replace("/sandboxes/{id}", f"/sandboxes/{sandbox}")
    path = path.replace("{pid}", "1").replace("{port}", "8000")
    path = re.sub(r"\{path\.\.\.\}", "x", path)
    path = re.sub(r"\{[a-z]+(\.\.\.)?\}", "x", path)
    if "/files" in path or path.endswith("/tar"):
        path += "?path=/tmp"
    return path


def body_of(method, path):
    if method in ("GET", "DELETE"):
        return None
    return json.dumps(BODIES.get(path.rsplit("/", 1)[1], {}))


routes = [l.split() for l in subprocess.run([os.path.dirname(os.path.realpath(den)) + "/den-serve", "--routes"], check=True,
                                           stdout=subprocess.PIPE, text=True).stdout.splitlines()]
assert len(routes) > 100, len(routes)
hidden = refused_first = 0
for dialect, method, path, auth, scope in routes:
    name = f"{dialect} {method} {path}"
    p, body = concrete(path, one), body_of(method, path)
    if auth == "none":
        if f"{method} {path}" in OPEN:
            continue
        if f"{method} {path}" in OWN_TOKEN or path.startswith("/volumecontent/"):
            want(name + " without its token", call(method, p, None, body), 401, 403, 404)
            want(name + " with a key for it", call(method, p, None, body, {"Authorization": "Bearer " + kb["key"]}), 401, 403, 404)
            continue
        bad.append(f"{name} asks for nothing, and nobody has looked at it")
    elif auth in ("key", "admin"):
        want(name + " without a key", call(method, p, None, body), 401)
        want(name + " with a revoked key", call(method, p, gone["key"], body), 401)
        if auth == "admin":
            want(name + " with a key that is no admin's", call(method, p, ka["key"], body), 403)
            continue
        if scope in ("boxes", "secrets", "templates"):
            want(name + " with a key that may only read", call(method, p, reads["key"], body), 403)
        elif scope == "read":
            want(name + " with a key that may not read", call(method, p, seals["key"], body), 403)
        if one in p or one[2:] in p:
            got = call(method, p, kb["key"], body)
            want(name + " with a key of another organisation", got, 404, 400)
            hidden += got[0] == 404
            refused_first += got[0] == 400
    elif dialect == "envd":
        sandbox = {"E2b-Sandbox-Id": "i" + one[2:], "E2b-Sandbox-Port": "49983"}
        if path.startswith(("/process", "/filesystem")):
            sandbox["Connect-Protocol-Version"] = "1"
        if path.endswith(("/Start", "/Connect", "/WatchDir")):
            sandbox["Content-Type"] = "application/connect+json"
            body = b"\0\0\0\0\x02{}"
        if path.endswith("/StreamInput"):
            continue  # answers "not served" to everybody
        for what, t in (("no token", None), ("the token of another box", token("envd", two)), ("a token for traffic", token("traffic", one)),
                        ("a key", ka["key"]), ("rubbish", "x" * 40)):
            h = dict(sandbox, **({"X-Access-Token": t} if t else {}))
            want(f"{name} with {what}", call(method, p, None, body, h), 401)
        h = dict(sandbox, **{"E2b-Sandbox-Id": "iaaaaaaaaaaaaaaaaaa", "X-Access-Token": token("envd", one)})
        want(f"{name} of a box that is not there", call(method, p, None, body, h), 502, 401)

# names are not seen across organisations either
status, body = call("GET", "/v1/boxes", kb["key"])
assert status == 200 and one not in body.decode() and two in body.decode(), body
status, body = call("GET", "/v2/sandboxes", kb["key"])
assert status == 200 and one[2:] not in body.decode(), body
status, body = call("GET", "/v1/boxes", ka["key"])
assert one in body.decode() and two not in body.decode(), body
status, body = call("GET", "/v1/boxes", admin)
assert one in body.decode() and two in body.decode(), body

# and nothing happened to the box meanwhile
status, after = call("GET", f"/v1/boxes/{one}", ka["key"])
same = ("id", "name", "state", "labels", "expires", "on_expire", "generation", "owner", "started")
b, a = json.loads(before), json.loads(after)
for k in same:
    if b.get(k) != a.get(k):
        bad.append(f"the box's {k} changed from {b.get(k)} to {a.get(k)}")
status, log_after = call("GET", f"/v1/boxes/{one}/checkpoints", ka["key"])
if log_before != log_after:
    bad.append("the box's history changed")

print(f"{len(routes)} routes, {hidden} hidden, {refused_first} refused before looking")
if hidden < 40:
    bad.append(f"only {hidden} routes said that the box is not there")
if bad:
    print("\n".join(bad))
    sys.exit(1)
