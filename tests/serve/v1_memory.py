"""/v1: programs that are put on disk and come back."""
import os
import time

from kit import Api, check, soon
from v1_kit import refused, test

COUNT = "i=0; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done"


def can_save(api):
    """Where programs cannot be saved, tests of it end here: what_cannot_be_saved_is_told says how that looks. serve_memory.sh
    skips them there, so that it is seen, and says CAN_SAVE where it must work."""
    b = api.box()
    want = 201 if os.environ.get("CAN_SAVE") else (201, 501)
    status = api.post("/v1/boxes/%s/checkpoints" % b, {"full": True}, want).status
    api.call("DELETE", "/v1/boxes/" + b, want=204)
    return status == 201


def counting(api, **spec):
    b = api.box(**spec)
    api.post("/v1/boxes/%s/execs" % b, {"command": COUNT, "detach": True}, 202)
    soon(10, lambda: count(api, b) > 3, "it counts")
    return b


def count(api, b):
    return int(api.sh(b, "cat /tmp/count 2>/dev/null || echo 0")["stdout"])


def goes_on(api, b, before, what):
    n = count(api, b)
    check(before <= n < before + 200, "%s: %d became %d" % (what, before, n))
    soon(10, lambda: count(api, b) > n, what)


@test
def pause_to_disk(api):
    if not can_save(api):
        return
    b = counting(api)
    p = "/v1/boxes/" + b
    n = count(api, b)
    x = api.post(p + "/pause", {"disk": True}).json
    check(x["state"] == "paused" and x["on_disk"] and not x["hibernated"], "paused %r" % x)
    check(x["saved"]["memory"] > 0 and x["saved"]["lost"] == [] and x["saved"]["frozen_us"] > 0, "saved %r" % x["saved"])
    check(api.get(p).json["on_disk"] and api.get("/v1/boxes?state=paused").json["boxes"][0]["on_disk"], "told")
    api.post(p + "/pause", {"disk": True}, (200, 409))
    check(api.get(p).json["on_disk"], "once more changes nothing")
    check(api.post(p + "/resume").json["state"] == "running" and not api.get(p).json["on_disk"], "resumed")
    goes_on(api, b, n, "after resume")
    n = count(api, b)
    api.post(p + "/pause", {"disk": True})
    goes_on(api, b, n, "an exec wakes it")
    x = api.get(p).json
    check(x["state"] == "running" and x["restores"] == 2, "woken %r" % x)
    api.post(p + "/pause", {"disk": True})
    check(api.get(p + "/files?path=/tmp/count").body, "a file wakes it")
    api.post(p + "/pause", {"disk": True})
    api.call("DELETE", p, want=204)
    refused(api.post("/v1/boxes", {"on_idle": "pause-dsk"}, 400), "invalid", "pause-disk")


@test
def full_checkpoints_and_forks(api):
    if not can_save(api):
        return
    b = counting(api, history="manual")
    p = "/v1/boxes/" + b
    n = count(api, b)
    s = api.post(p + "/checkpoints", {"full": True, "message": "all"}, 201).json
    check(s["memory"] > 0 and s["lost"] == [], "saved %r" % s)
    c = [c for c in api.get(p + "/checkpoints").json["checkpoints"] if c["number"] == s["number"]][0]
    check(c["full"] and c["memory"] and c["message"] == "all", "told %r" % c)
    check(c["memory_disk"] > 0 and c["memory_shared"] is not None, "on disk %r" % c)
    goes_on(api, b, n, "it goes on after a checkpoint")
    time.sleep(1)
    a = api.post(p + "/fork", {"full": True, "count": 2}, 201).json
    check(a["saved"]["memory"] > 0 and len(a["boxes"]) == 2, "forks %r" % a)
    for f in a["boxes"]:
        goes_on(api, f["id"], n, "a fork")
        api.call("DELETE", "/v1/boxes/" + f["id"], want=204)
    f = api.post(p + "/fork", {"full": True, "ref": str(s["number"])}, 201).json["boxes"][0]["id"]
    goes_on(api, f, n, "a fork of the checkpoint")
    late = count(api, b)
    api.post(p + "/rollback", {"ref": str(s["number"])})
    n2 = count(api, b)
    check(n2 < late + 20, "rolled back: %d, was %d" % (n2, late))
    goes_on(api, b, n, "after rollback")
    api.post(p + "/rollback", {"ref": str(s["number"]), "disk": True})
    n = count(api, b)
    time.sleep(0.5)
    check(count(api, b) == n, "files alone: nobody counts")


@test
def idle_goes_to_disk(api):
    if not can_save(api):
        return
    b = api.box(idle_ms=1000, on_idle="pause-disk")
    p = "/v1/boxes/" + b
    soon(15, lambda: api.get(p).json["on_disk"], "idle, it is on disk")
    check(api.sh(b, "echo hi")["stdout"] == "hi\n", "and back")


@test
def baked_templates(api):
    if not can_save(api):
        return
    b = counting(api)
    n = count(api, b)
    api.post("/v1/boxes/%s/bake" % b, {"name": "warm"}, 201)
    t = api.post("/v1/boxes", {"template": "warm"}, 201).json["id"]
    goes_on(api, t, n, "a box of the template")
    api.call("DELETE", "/v1/boxes/" + t, want=204)
    api.call("DELETE", "/v1/templates/warm", want=204)


@test
def hibernate(api):
    b = api.box()
    p = "/v1/boxes/" + b
    api.sh(b, "echo kept >/root/f")
    api.post(p + "/execs", {"command": "sleep 1000", "detach": True}, 202)
    x = api.post(p + "/hibernate").json
    check(x["state"] == "paused" and x["on_disk"] and x["hibernated"], "hibernated %r" % x)
    check(api.sh(b, "cat /root/f; pgrep -c sleep || true")["stdout"].split()[0] == "kept", "any use starts it")
    check(api.get(p).json["state"] == "running", "it runs")


@test
def what_cannot_be_saved_is_told(api):
    b = api.box()
    p = "/v1/boxes/" + b
    a = api.post(p + "/pause", {"disk": True}, (200, 501))
    if a.status == 501:  # an ordinary user, or no CRIU: the old pause is there, and the box goes on
        refused(a, "unsupported")
        check(api.sh(b, "echo up")["stdout"] == "up\n", "it goes on")
        refused(api.post(p + "/checkpoints", {"full": True}, 501), "unsupported")
        refused(api.post(p + "/fork", {"full": True}, 501), "unsupported")
        refused(api.post("/v1/boxes", {"ttl_ms": 60000, "on_expire": "pause-disk"}, 501), "unsupported")
    refused(api.post(p + "/pause", {"dsik": True}, 400), "invalid", "disk")
