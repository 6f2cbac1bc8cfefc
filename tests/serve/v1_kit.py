"""What the tests of /v1 share: their table, and what an error looks like."""
from kit import check

tests = {}


def test(fn):
    tests[fn.__name__] = fn
    return fn


def refused(a, code, *words):
    e = a.json["error"]
    check(set(e) == {"code", "message", "next"} and e["code"] == code and e["next"], "error %r" % a)
    for w in words:
        check(w in e["message"], "%r does not say %r" % (e["message"], w))
