"""/v1: what belongs to an organisation: templates, policies, ports, secrets, keys, events, usage."""
import json, os, threading, time

from kit import Api, b64, check, soon
from v1_kit import refused, test


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
    # asked for, it is looked at: nobody waits for the meter's next round
    first = soon(3, lambda: row() and row()["cpu_ms"] > 100 and row(), "usage")
    time.sleep(4)
    r = row()
    check(r["cpu_ms"] > first["cpu_ms"], "%r, then %r" % (first, r))
    total = max(x["cpu_ms"] for x in api.get("/v1/usage?by=org").json["usage"])
    check(total >= r["cpu_ms"], "what was seen is in the sums: %d, %d" % (total, r["cpu_ms"]))
    check(r["name"] == "busy" and r["org"] == "default" and r["wall_ms"] > 3000 and r["memory_mib_s"] >= 0, "row %r" % r)
    for by in ("key", "org", "hour"):
        rows = api.get("/v1/usage?by=" + by).json["usage"]
        check(rows and max(x["cpu_ms"] for x in rows) >= r["cpu_ms"], "%s: %r" % (by, rows))
    check(api.get("/v1/usage?to=2001-01-01T00:00:00Z").json["usage"] == [], "none then")
    refused(api.get("/v1/usage?by=day", 400), "invalid", "by")
    refused(api.get("/v1/usage?from=yesterday", 400), "invalid")
