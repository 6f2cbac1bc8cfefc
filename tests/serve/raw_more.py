"""WebSocket and other upgrades, TLS, unix sockets, probes."""
import os, re, socket, ssl, struct, subprocess, tempfile, threading

from raw_kit import *
from raw_time import wait_metric


def websockets():
    with Server() as s:
        w = websocket(s, "/ws", "Sec-WebSocket-Protocol: other, den")
        is_("protocol", w.headers["sec-websocket-protocol"], "den")
        for op, data in ((1, b"hello"), (2, bytes(range(256))), (1, "\u00e9\u20ac".encode()), (1, b""), (2, b"x" * 70000)):
            w.send(frame(op, data))
            is_("echo", frame_read(w), (op, data))
        w.send(frame(1, b"a", fin=False), frame(9, b"ping"), frame(0, b"b", fin=False), frame(0, b"c"))
        is_("pong", frame_read(w), (10, b"ping"))
        is_("parts", frame_read(w), (1, b"abc"))
        w.send(b"".join(frame(1, b"%d" % i) for i in range(500)))
        for i in range(500):
            is_("burst", frame_read(w), (1, b"%d" % i))
        for byte in frame(1, b"slowly"):
            w.send(bytes([byte]))
        is_("slowly", frame_read(w), (1, b"slowly"))
        w.send(frame(8, struct.pack("!H", 1000) + b"bye"))
        closed_with(w, 1000)
        w = websocket(s, "/ws").send(frame(1, "quit"))
        closed_with(w, 1000)
        for bad, code in ((frame(1, b"\xff"), 1007), (frame(2, b"x" * 100001), 1009), (frame(1, b"a", mask=False), 1002),
                          (frame(1, b"a", rsv=0x40), 1002), (frame(3, b"a"), 1002), (frame(9, b"a" * 126), None),
                          (frame(0, b"a"), 1002), (frame(8, struct.pack("!H", 999)), 1002),
                          (frame(2, b"a" * 60000, fin=False) + frame(0, b"a" * 60000), 1009)):
            w = websocket(s, "/ws").send(bad)
            closed_with(w, code)
        # gone without a word
        w = websocket(s, "/ws")
        w.close()
        s.wait_said('"ended with -1"')
        # pings that nobody reads the answers of
        w = websocket(s, "/ws")
        w.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        w.s.settimeout(1)
        before = s.rss()
        try:
            for i in range(20000):
                w.send(frame(9, b"p" * 125) * 10)
        except (socket.timeout, TimeoutError):
            pass
        assert s.rss() - before < 3000, (before, s.rss())
        w.close()
        for bad, want in ((["Sec-WebSocket-Version: 8"], 426), (["Sec-WebSocket-Key: abc"], 400), ([], 426)):
            c = s.conn()
            base = [] if not bad else ["Upgrade: websocket", "Connection: Upgrade"]
            base += [h for h in ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
                     if bad and h.split(":")[0] != bad[0].split(":")[0]]
            is_(bad, c.get("/ws", *base, *bad)[0], want)
        for origin, ok in (("http://x", True), ("https://x", True), ("http://evil", False), ("null", False), ("http://x.evil", False)):
            try:
                websocket(s, "/ws", "Origin: " + origin)
                got = True
            except Exception as e:
                assert "no websocket: 403" in str(e), e
                got = False
            is_(origin, got, ok)
        websocket(s, "/ws", "Origin: http://evil", "X-API-Key: good")


def upgrades():
    with Server() as s:
        for i in range(3):
            c = s.conn().send("GET /raw HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
            is_("switched", c.head(), 101)
            is_("upgrade", c.headers["upgrade"].lower(), "raw")
            for part in (b"abc", b"x" * 100000):
                t = threading.Thread(target=c.send, args=(part,))
                t.start()
                is_("echo", c.take(len(part)), part)
                t.join()
            c.s.shutdown(socket.SHUT_WR)
            is_("end", c.closed(), b"")
        c = s.conn().send("GET /raw HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
        is_("switched", c.head(), 101)
        c.close()
        wait_metric(s, "den_streams", 0)
        fds = len(os.listdir("/proc/%d/fd" % s.p.pid))
        assert fds < 20, fds


def tls():
    keep = tempfile.TemporaryDirectory()
    d = keep.name
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                    d + "/k", "-out", d + "/c", "-subj", "/CN=localhost", "-days", "2"], check=True, capture_output=True)
    ctx = ssl.create_default_context()
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    with Server("--tls", d + "/c", d + "/k") as s:
        def conn():
            return Conn(sock=ctx.wrap_socket(socket.create_connection(("127.0.0.1", s.port))))
        c = conn()
        for i in range(5):
            is_("hello", c.get("/hello"), (200, b"hello\n"))
        is_("source", len(c.get("/source?n=3000000")[1]), 3000000)
        c.send("POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n", b"x" * 5000000)
        is_("sink", c.answer(), (200, b"5000000\n"))
        c = conn().send("GET /raw HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
        is_("switched", c.head(), 101)
        for i in range(20):
            c.send(b"abc%d" % i)
            is_("echo", c.take(len(b"abc%d" % i)), b"abc%d" % i)
        c.close()
        c = conn().send("GET /ticks?ms=100000 HTTP/1.1\r\nHost: x\r\n\r\n")
        c.head()
        c.chunk()
        c.close()
        s.wait_said('"ended by 2"')
        c = conn().send("POST /impatient HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n", b"x" * 500000)
        is_("impatient", c.answer()[0], 409)
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in Conn(sock=c).closed()
        is_("alive", conn().get("/hello")[0], 200)


def unix_socket():
    keep = tempfile.TemporaryDirectory()
    d = keep.name
    with Server(where=d + "/s") as s:
        is_("hello", s.conn().get("/hello"), (200, b"hello\n"))
        is_("mode", os.stat(d + "/s").st_mode & 0o777, 0o600)
        s.wait_said('"peer":"unix"')
    with Server(where=d + "/s") as s:  # over what the last one left
        is_("hello", s.conn().get("/hello"), (200, b"hello\n"))


def probes():
    with Server() as s:
        is_("health", s.conn().get("/healthz"), (200, b"ok\n"))
        is_("ready", s.conn().get("/readyz"), (200, b"ready\n"))
        status, body = s.conn().get("/metrics")
        is_("metrics", status, 200)
        names = set()
        for line in body.decode().splitlines():
            if line.startswith("#"):
                continue
            assert re.match(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$', line), line
            names.add(re.split(r"[{ ]", line)[0])
        for want in ("den_requests_total", "den_request_seconds_bucket", "den_streams", "den_workers", "den_connections",
                     "den_bytes_in_total", "process_resident_memory_bytes"):
            assert want in names, want
        is_("from afar", s.conn().get("/metrics", "X-Forwarded-For: 1.2.3.4")[0], 403)
        is_("with a key", s.conn().get("/metrics", "X-Forwarded-For: 1.2.3.4", "Authorization: Bearer admin")[0], 200)
        is_("with a plain key", s.conn().get("/metrics", "X-Forwarded-For: 1.2.3.4", "X-API-Key: good")[0], 403)
        is_("with no key", s.conn().get("/metrics", "X-Forwarded-For: 1.2.3.4", "X-API-Key: bad")[0], 401)
