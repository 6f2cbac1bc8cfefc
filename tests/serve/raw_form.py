"""What requests look like: framing, addresses, headers, bodies; keys and CORS."""
import json, re, socket, threading, time

from raw_kit import *


# ---- the same connection ----

def keep_alive():
    with Server() as s:
        c = s.conn()
        for i in range(50):
            is_("answer", c.get("/hello"), (200, b"hello\n"))
            c.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            is_("echo", c.answer(), (200, b"abc"))
        # several at once, answered in order
        c.send("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n" * 3, "GET /arg/last HTTP/1.1\r\nHost: x\r\n\r\n")
        for i in range(3):
            is_("pipelined", c.answer()[0], 200)
        is_("last", c.answer(), (200, b"last"))
        # an error that was understood keeps it open
        is_("missing", c.get("/nope")[0], 404)
        c.send("POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n" + "x" * 101)
        is_("too large", c.answer()[0], 413)
        is_("after", c.get("/hello")[0], 200)
        c.send("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        is_("head", c.answer("HEAD"), (200, b""))
        is_("length of head", c.headers["content-length"], "6")
        c.send("HEAD /source?n=1000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        is_("head of a stream", c.answer("HEAD"), (200, b""))
        is_("after", c.get("/hello")[0], 200)
        c.send("GET /hello HTTP/1.0\r\n\r\n")
        is_("1.0", c.answer()[0], 200)
        c.closed()


def chunked():
    with Server() as s:
        c = s.conn().send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (b"a", b"bc" * 1000, b"d"):
            c.send("%x\r\n" % len(part), part, "\r\n")
            time.sleep(0.02)
        c.send("0\r\n\r\n")
        is_("echo", c.answer(), (200, b"a" + b"bc" * 1000 + b"d"))
        c = s.conn().send("POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(100):
            c.send("10000\r\n", b"z" * 65536, "\r\n")
        c.send("0\r\nX-Trailer: ignored\r\n\r\n")
        is_("sink", c.answer(), (200, b"6553600\n"))
        c = s.conn()
        is_("source", len(c.get("/source?n=300000")[1]), 300000)
        is_("chunked", c.headers["transfer-encoding"], "chunked")
        is_("known", len(c.get("/source?n=300000&known=1")[1]), 300000)
        is_("length", c.headers["content-length"], "300000")
        for bad in ("zz\r\nabc\r\n0\r\n\r\n", "-1\r\na\r\n0\r\n\r\n", "fffffffffffffffff\r\na"):
            c = s.conn().send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", bad)
            assert b" 200 " not in c.closed(), bad
        is_("alive", s.conn().get("/hello")[0], 200)


def expect_continue():
    with Server() as s:
        c = s.conn().send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        is_("go on", c.line(), "HTTP/1.1 100 Continue")
        is_("blank", c.line(), "")
        c.send("abc")
        is_("echo", c.answer(), (200, b"abc"))
        # a refusal comes instead of it, before a byte of the body
        for path, want in (("/small", 413), ("/nope", 404), ("/secret", 401)):
            c = s.conn().send("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n"
                              "Expect: 100-continue\r\n\r\n" % path)
            assert not c.line().startswith("HTTP/1.1 100"), path


def early_answers():
    """Refused in the middle of a body: the client reads the answer, not a reset."""
    big = b"x" * (8 << 20)

    def upload(s, path, header=""):
        c = s.conn().send("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path, len(big), header))
        t = threading.Thread(target=lambda: feed(c), daemon=True)
        t.start()
        status = c.answer()[0]
        c.close()
        return status

    def feed(c):
        try:
            c.s.sendall(big)
        except OSError:
            pass

    with Server() as s:
        for path, header, want in (("/small", "", 413), ("/secret", "", 401), ("/impatient", "", 409),
                                   ("/secret", "X-API-Key: bad\r\n", 401), ("/nope", "", 404)):
            for i in range(5):
                is_(path, upload(s, path, header), want)
        # chunked beyond the limit: told, though the end never comes
        c = s.conn().send("POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n", b"y" * 4096)
        is_("chunked too large", c.answer()[0], 413)
        # answered between two chunks: what is sent after that must not reset what the client has not read yet
        c = s.conn().send("POST /impatient HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        for i in range(4):
            time.sleep(0.15)
            c.send("1\r\nx\r\n")
        time.sleep(0.15)
        is_("answered between chunks", c.answer()[0], 409)
        is_("alive", s.conn().get("/hello")[0], 200)


# ---- what a request may look like ----

def smuggling():
    cases = {
        "both lengths": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "two same lengths": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "list of lengths": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc",
        "signed length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
        "hex length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc",
        "empty length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nabc",
        "huge length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
        "other encoding": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\nabc",
        "two encodings": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "xchunked": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "chunked twice": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunked in 1.0": "POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "space before colon": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
        "space before name": "POST /echo HTTP/1.1\r\n Host: x\r\nContent-Length: 3\r\n\r\nabc",
        "folded": "POST /echo HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\nContent-Length: 3\r\n\r\nabc",
        "folded into a name": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-: chunked\r\n Encoding\r\n\r\n0\r\n\r\n",
        "tab folded": "POST /echo HTTP/1.1\r\nHost: x\r\nX-A: b\r\n\tc\r\n\r\n",
        "bare LF": "POST /echo HTTP/1.1\r\nHost: x\nContent-Length: 3\r\n\r\nabc",
        "bare LF at the end": "GET /hello HTTP/1.1\r\nHost: x\r\n\n",
        "all bare LF": "GET /hello HTTP/1.1\nHost: x\n\n",
        "bare LF after the first line": "GET /hello HTTP/1.1\nHost: x\r\n\r\n",
        "bare CR": "GET /hello HTTP/1.1\r\nHost: x\rX-B: c\r\n\r\n",
        "NUL in a value": "GET /hello HTTP/1.1\r\nHost: x\0y\r\n\r\n",
        "NUL in a name": "GET /hello HTTP/1.1\r\nHost: x\r\nX\0Y: z\r\n\r\n",
        "NUL as a line": "GET /hello HTTP/1.1\r\nHost: x\r\n\0\r\nContent-Length: 3\r\n\r\nabc",
        "NUL in the target": "GET /hello\0x HTTP/1.1\r\nHost: x\r\n\r\n",
        "control in a value": "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: \x01\r\n\r\n",
        "no colon": "GET /hello HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n",
        "empty name": "GET /hello HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
        "bad name": "GET /hello HTTP/1.1\r\nHost: x\r\nX(a): y\r\n\r\n",
        "no host": "GET /hello HTTP/1.1\r\n\r\n",
        "two hosts": "GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "space in the target": "GET /hel lo HTTP/1.1\r\nHost: x\r\n\r\n",
        "two spaces": "GET  /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "space at the end": "GET /hello HTTP/1.1 \r\nHost: x\r\n\r\n",
        "absolute target": "GET http://y/hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "fragment": "GET /hello#x HTTP/1.1\r\nHost: x\r\n\r\n",
        "no version": "GET /hello\r\nHost: x\r\n\r\n",
        "version 2": "GET /hello HTTP/2.0\r\nHost: x\r\n\r\n",
        "version 1.2x": "GET /hello HTTP/1.1x\r\nHost: x\r\n\r\n",
        "bad method": "GE(T /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "raw UTF-8 control": "GET /hello\x7f HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    with Server() as s:
        for name, text in cases.items():
            # whatever is behind it must not be taken for a request
            c = s.conn().send(text.encode("latin1"), "GET /hello HTTP/1.1\r\nHost: smuggled\r\n\r\n")
            got = c.closed()
            if b"HTTP/1.1 200" in got or b"hello\n" in got:
                raise Exception("%s is taken: %r" % (name, got))
            if got and not re.match(rb"HTTP/1\.[01] (400|501|505|413) ", got):
                raise Exception("%s: %r" % (name, got[:100]))
        # after a chunked body nothing on that connection is a request, however its chunks were written
        c = s.conn().send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n"
                          "GET /hello HTTP/1.1\r\nHost: smuggled\r\n\r\n")
        assert b"hello" not in c.closed()
        # and what is well-formed, if unusual, is taken
        for name, text in {
            "padding": "GET /hello HTTP/1.1\r\nHost:x\r\nX-A:  \t b \t \r\nX-Empty:\r\n\r\n",
            "case": "GET /hello HTTP/1.1\r\nhOsT: x\r\n\r\n",
            "latin1": "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: \xe9\r\n\r\n",
            "blank line before": "\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        }.items():
            is_(name, s.conn().send(text.encode("latin1")).answer()[0], 200)


def paths():
    with Server() as s:
        for path, want in (("/arg/a%2Fb", (200, b"a/b")), ("/arg/%41", (200, b"A")), ("/arg/a+b", (200, b"a+b")),
                           ("/rest/a/../b%2f", (200, b"a/../b%2f")), ("/rest/", (200, b"")), ("/arg/fixed", (200, b"hello\n")),
                           ("/query?name=a+b%20c%26", (200, b"a b c&")), ("/query?name", (200, b"")), ("/query?", (200, b"-"))):
            is_(path, s.conn().get(path), want)
        for path, want in (("/arg/", 404), ("/arg", 404), ("/arg/a/b", 404), ("//hello", 404), ("/hello/", 404),
                           ("/arg/%", 400), ("/arg/%4", 400), ("/arg/%zz", 400), ("/arg/%00", 400), ("/arg/%ff", 400),
                           ("/arg/%c0%af", 400), ("/arg/%ed%a0%80", 400), ("/query?name=%00", 400), ("/query?x=%zz", 400),
                           ("/query?nam=1", 400), ("/query?name=1&name=2", 400), ("/query?" + "a&" * 300, 400),
                           ("/source?n=x", 400), ("/source?n=-1", 400), ("/%68ello", 404), ("/./hello", 404)):
            c = s.conn()
            status, body = c.get(path)
            is_(path, status, want)
            assert json.loads(body)["error"]["message"]
        c = s.conn()
        is_("injected", c.get("/arg/x")[0], 200)
        assert "x-injected" not in c.headers and c.headers["x-fine"] == "yes"
        is_("405", c.get("/echo")[0], 405)
        is_("allow", c.headers["allow"], "POST, PUT")
        for m in ("GET", "POST", "WEIRD", "DELETE"):
            is_(m, c.send("%s /any/thing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok" % m).answer(), (200, b"ok"))
        c.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        is_("OPTIONS *", c.answer()[0], 404)


def keys():
    with Server() as s:
        for path, key, want in (("/whoami", None, 401), ("/whoami", "bad", 401), ("/whoami", "good", 200), ("/whoami", "slow", 429),
                                ("/scoped", "good", 200), ("/unscoped", "good", 403), ("/unscoped", "admin", 200),
                                ("/admin", "good", 403), ("/admin", "admin", 200)):
            c = s.conn()
            is_("%s %s" % (path, key), c.get(path, *(["X-API-Key: " + key] if key else []))[0], want)
            assert want != 401 or c.headers["www-authenticate"] == "Bearer"


def cors():
    with Server() as s:
        c = s.conn()
        c.send("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nAccess-Control-Request-Method: PUT\r\n"
               "Access-Control-Request-Headers: x-api-key, content-type\r\n\r\n")
        is_("preflight", c.answer(), (204, b""))
        is_("origin", c.headers["access-control-allow-origin"], "*")
        is_("methods", c.headers["access-control-allow-methods"], "POST, PUT")
        is_("headers", c.headers["access-control-allow-headers"], "x-api-key, content-type")
        for path, want in (("/hello", 200), ("/nope", 404), ("/whoami", 401), ("/source?n=5", 200)):
            is_(path, c.get(path, "Origin: http://a")[0], want)
            is_("origin of " + path, c.headers["access-control-allow-origin"], "*")
        c.get("/hello")
        assert "access-control-allow-origin" not in c.headers
        c.get("/healthz", "Origin: http://a")
        assert "access-control-allow-origin" not in c.headers


def huge_heads():
    with Server() as s:
        before = s.rss()
        is_("address", s.conn().get("/" + "a" * 17000)[0], 414)
        is_("address that fits", s.conn().get("/" + "a" * 16000)[0], 404)
        is_("header", s.conn().get("/hello", "X-A: " + "b" * 33000)[0], 431)
        is_("headers", s.conn().get("/hello", *["X-%d: b" % i for i in range(201)])[0], 431)
        is_("headers that fit", s.conn().get("/hello", *["X-%d: %s" % (i, "b" * 100) for i in range(150)])[0], 200)
        for what in (b"GET /" + b"a" * 10000000, b"GET /hello HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 1000000,
                     b"A" * 1000000, b"\r\n" * 1000000):
            c = s.conn()
            try:
                c.s.sendall(what)
                got = c.closed()
            except OSError:
                got = b""
            assert b" 200 " not in got
            c.close()
        assert s.rss() - before < 8000, (before, s.rss())
        is_("alive", s.conn().get("/hello")[0], 200)


def jsons():
    def post(s, body):
        body = body if isinstance(body, bytes) else body.encode()
        c = s.conn().send("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), body)
        status, text = c.answer()
        return status, json.loads(text)

    with Server() as s:
        before = s.rss()
        is_("empty", post(s, ""), (200, {"name": "-", "count": 0, "words": 0}))
        is_("fine", post(s, '{"name":"one","count":7.0,"words":["a","\\u00e9"]}')[1], {"name": "one", "count": 7, "words": 2})
        for body, says in (
                ("[" * 100000, "deeper"), ('{"a":' * 33 + "1" + "}" * 33, "deeper"), ("{" * 7000000, "deeper"),
                ('{"words":[' + '"a",' * 1000000 + '"a"]}', "values"), (b'{"name":"\xff"}', "UTF-8 at byte 9"),
                (b'{"name":"\xed\xa0\x80"}', "UTF-8"), ('{"name":"\\ud800"}', "not JSON"), ('{"name":"a\\u0000b"}', "not JSON"),
                ('{"name":"one","name":"two"}', "not JSON"), ("[]", "object"), ("nonsense", "not JSON"), ('{"a":1}', "unknown field 'a'"),
                ('{"nmae":1}', "did you mean 'name'"), ('{"name":5}', "must be a text"), ('{"count":101}', "from 0 to 100"),
                ('{"count":-1}', "from 0"), ('{"count":1.5}', "whole"), ('{"count":null}', "not null"), ('{"words":["a",1]}', "[1]"),
                ('{"words":{}}', "list"), ('{"name":"three"}', "none of"), ('{"name":"one"} x', "not JSON"), ('{"count":1e400}', "not JSON")):
            status, got = post(s, body)
            is_(body[:40], status, 400)
            assert says in got["error"]["message"], (body[:40], got)
        status, got = post(s, "x" * (8 << 20) + "x")
        is_("large", status, 413)
        assert s.rss() - before < 80000, (before, s.rss())
        is_("alive", s.conn().get("/hello")[0], 200)
