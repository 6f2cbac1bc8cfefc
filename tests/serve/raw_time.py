"""Slow, gone, stopped and many clients; memory."""
import json, re, resource, select, socket, time

from raw_kit import *


# ---- slow and gone ----

def slow_clients():
    with Server("--header-ms", "1500") as s:
        start = time.time()
        silent, slow, line, fine, again = (s.conn() for i in range(5))
        is_("first", again.get("/hello")[0], 200)
        slow.send("GET /hello HTTP/1.1\r\nHost: x\r\n")
        line.send("GE")
        gone = {}
        for i in range(60):
            time.sleep(0.1)
            for name, c, byte in (("slow", slow, "X-%d: y\r\n" % i), ("line", line, "T"), ("silent", silent, ""),
                                  ("again", again, "G" if i > 10 else "")):
                try:
                    if name not in gone:
                        c.send(byte)
                        if select.select([c.s], [], [], 0)[0] and not c.s.recv(100):
                            gone[name] = time.time() - start
                except OSError:
                    gone[name] = time.time() - start
        is_("cut", sorted(gone), ["again", "line", "silent", "slow"])
        assert all(1.0 < t < 6 for t in gone.values()), gone
        # one that waits between requests stays
        c = s.conn()
        is_("first", c.get("/hello")[0], 200)
        time.sleep(4)
        is_("second", c.get("/hello")[0], 200)


def slow_body():
    """A byte a second of a body that is held in memory."""
    with Server() as s:
        c = s.conn().send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        streamed = s.conn().send("POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        start = time.time()
        try:
            while time.time() - start < 40:
                c.send("x")
                if time.time() - start < 30:
                    streamed.send("x")
                time.sleep(0.5)
                if select.select([c.s], [], [], 0)[0]:
                    c.more()
            raise Exception("it was not cut")
        except (EOFError, OSError):
            pass
        assert 18 < time.time() - start < 35
        streamed.send(b"x" * (100 - 2 * int(time.time() - start)) + b"x" * 100)
        is_("streamed bodies may be slow", streamed.answer()[0], 200)


def hang_ups():
    with Server() as s:
        for path, says in (("/ticks?ms=100000", '"ended by 2"'), ("/lazy?ms=100000", '"waited: 2"')):
            c = s.conn().send("GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            time.sleep(0.3)
            t = time.time()
            c.close()
            s.wait_said(says, 2)
            assert time.time() - t < 0.5
        # while the handler waits for room
        c = s.conn().send("GET /source?n=1000000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        c.head()
        time.sleep(0.3)
        c.close()
        # in the middle of a body
        c = s.conn().send("POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + "x" * 1000)
        time.sleep(0.2)
        c.close()
        # while the server does not read it
        c = s.conn().send("POST /sink?us=300000 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n", b"x" * 1000000)
        c.close()
        wait_metric(s, "den_workers_busy", 1)
        is_("streams", metric(s, "den_streams"), 0)


def half_closed():
    """Who sends no more gets the answer, and is let go: at once, or after a moment where the request never becomes whole."""
    with Server() as s:
        for text, want, most in (("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, 1), ("GET /echo?x=%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, 1),
                                 ("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", None, 1),
                                 ("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", 0, 5), ("GET / HT", 0, 5)):
            for pause in (0, 0.3):
                c = s.conn().send(text)
                time.sleep(pause)
                t = time.time()
                c.s.shutdown(socket.SHUT_WR)
                if want != 0:
                    got = c.answer()[0]
                    assert want is None or got == want, (text, got)
                is_("the end", c.closed(), b"")
                assert time.time() - t < most, (text, pause, time.time() - t)


def metric(s, name):
    return int(re.search(r"^%s (\d+)" % name, s.conn().get("/metrics")[1].decode(), re.M).group(1))


def wait_metric(s, name, want, seconds=10):
    until = time.time() + seconds
    while metric(s, name) != want:
        if time.time() > until:
            raise Exception("%s is %d, not %d" % (name, metric(s, name), want))
        time.sleep(0.05)


def broken_streams():
    with Server() as s:
        c = s.conn().send("GET /cut HTTP/1.1\r\nHost: x\r\n\r\n")
        is_("status", c.head(), 200)
        is_("half", c.chunk(), b"half")
        is_("no end", c.closed(), b"")
        c = s.conn().send("GET /short HTTP/1.1\r\nHost: x\r\n\r\n")
        is_("status", c.head(), 200)
        is_("half", c.closed(), b"half")
        c = s.conn().send("GET /cut HTTP/1.0\r\nHost: x\r\n\r\n")
        try:
            while c.s.recv(1000):
                pass
            raise Exception("a broken answer looked whole to HTTP/1.0")
        except ConnectionResetError:
            pass
        is_("silent", s.conn().get("/silent")[0], 500)
        status, body = s.conn().get("/boom")
        is_("boom", status, 500)
        json.loads(body)
        for line in s.said().splitlines():
            json.loads(line)


def at_once():
    """Each write is on the wire by itself."""
    with Server() as s:
        c = s.conn().send("GET /ticks?ms=30 HTTP/1.1\r\nHost: x\r\n\r\n")
        c.head()
        last, worst = time.time(), 0
        for i in range(30):
            is_("tick", c.chunk(), b"tick\n")
            worst = max(worst, time.time() - last)
            last = time.time()
        assert worst < 0.3, worst


def kicks():
    with Server() as s:
        a, b, other = (s.conn().send("GET /ticks?ms=60000&box=%s HTTP/1.1\r\nHost: x\r\n\r\n" % x) for x in ("b1", "b1", "b2"))
        w = websocket(s, "/ws?box=b1")
        for c in (a, b, other):
            c.head()
            c.chunk()
        t = time.time()
        is_("kick", s.conn().get("/kick/b1")[0], 204)
        for c in (a, b):
            is_("end", c.chunk(), b"end\n")
            is_("last", c.chunk(), b"")
        is_("closed", frame_read(w)[0], 8)
        assert time.time() - t < 1
        assert not select.select([other.s], [], [], 0.2)[0]


def stops():
    with Server() as s:
        stream, lazy, idle, slow = (s.conn() for i in range(4))
        stream.send("GET /ticks?ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n").head()
        stream.chunk()
        w = websocket(s, "/ws")
        is_("idle", idle.get("/hello")[0], 200)
        lazy.send("GET /lazy?ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.send("GET /source?n=1000000000 HTTP/1.1\r\nHost: x\r\n\r\n").head()
        time.sleep(0.3)
        t = time.time()
        s.p.terminate()
        is_("stream", stream.chunk(), b"end\n")
        is_("its end", stream.chunk(), b"")
        is_("lazy", lazy.answer(), (200, b"woken\n"))
        is_("says so", lazy.headers["connection"].lower(), "close")
        op, data = frame_read(w)
        is_("closed", (op, data[:2]), (8, struct.pack("!H", 1001)))
        slow.closed()
        idle.closed()
        is_("status", s.p.wait(5), 0)
        assert time.time() - t < 6
        try:
            s.conn()
            raise Exception("it still listens")
        except ConnectionRefusedError:
            pass


def too_many():
    with Server("--workers", "3") as s:
        held = [s.conn().send("GET /ticks?ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n") for i in range(3)]
        for c in held:
            c.head()
        c = s.conn()
        is_("one more", c.get("/hello")[0], 503)
        assert c.headers["retry-after"]
        is_("refused quickly", c.get("/nope")[0], 404)
        held[0].close()
        until = time.time() + 5
        while c.get("/hello")[0] != 200:
            assert time.time() < until
            time.sleep(0.05)


# ---- much ----

def back_pressure():
    """1 GiB each way; a client that stops reading, and a handler that is slow, cost no memory."""
    n = 1 << 30
    with Server() as s:
        before = s.rss()
        c = s.conn().send("GET /source?known=1&n=%d HTTP/1.1\r\nHost: x\r\n\r\n" % n)
        is_("status", c.head(), 200)
        time.sleep(0.5)
        stalled = s.rss()
        got, t, buf = len(c.data), time.time(), bytearray(1 << 20)
        while got < n:
            k = c.s.recv_into(buf)
            assert k
            got += k
        down = n / (time.time() - t) / 1e6
        is_("bytes", got, n)
        c = s.conn().send("POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n)
        t, part, peak = time.time(), b"x" * (1 << 20), 0
        for i in range(n >> 20):
            c.send(part)
            if i % 64 == 0:
                peak = max(peak, s.rss())
        is_("sink", c.answer(), (200, b"%d\n" % n))
        up = n / (time.time() - t) / 1e6
        # a slow handler holds the client
        c = s.conn().send("POST /sink?us=100000 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        c.s.setblocking(False)
        sent, until = 0, time.time() + 1
        while time.time() < until:
            try:
                sent += c.s.send(part)
            except BlockingIOError:
                time.sleep(0.01)
        assert sent < 20000000, sent
        assert max(stalled, peak, s.rss()) - before < 6000, (before, stalled, peak, s.rss())
        c.close()
        print("down %d MB/s, up %d MB/s, memory %d KiB, at most %d KiB more" % (down, up, before, max(stalled, peak) - before))


def idle_streams(n=1000):
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with Server() as s:
        is_("first", s.conn().get("/hello")[0], 200)
        before = s.rss()
        held = []
        t = time.time()
        for i in range(n):
            c = s.conn().send("GET /ticks?ms=600000 HTTP/1.1\r\nHost: x\r\n\r\n")
            held.append(c)
        for c in held:
            c.head()
            c.chunk()
        opened = time.time() - t
        each = (s.rss() - before) / n
        is_("alive", s.conn().get("/hello")[0], 200)
        is_("streams", metric(s, "den_streams"), n)
        for c in held:
            c.close()
        wait_metric(s, "den_streams", 0)
        wait_metric(s, "den_workers_busy", 1)
        assert each < 100, each
        print("%d streams: %.1f KiB each, opened in %.2f s" % (n, each, opened))


def many_requests(n=20000, conns=16):
    with Server() as s:
        held = [s.conn() for i in range(conns)]
        t = time.time()
        for i in range(n // conns // 10):
            for c in held:
                c.send("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
            for c in held:
                for k in range(10):
                    is_("status", c.answer()[0], 200)
        print("%d requests/s" % (n / (time.time() - t)))
        t = time.time()
        for i in range(1000):
            held[0].get("/hello")
        print("round trip %.0f us" % ((time.time() - t) * 1000))
