"""What tests/serve/raw*.py have in common: a server of their own, and connections byte by byte."""
import base64, hashlib, os, re, socket, struct, subprocess, sys, tempfile, time

ENGINE = sys.argv[1]


class Server:
    def __init__(self, *args, where="127.0.0.1:0"):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="engine")
        self.p = subprocess.Popen([ENGINE, *args, where], stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port, self.unix = 0, where if where.startswith("/") else None
        for line in self.p.stdout:
            if line.startswith("port"):
                self.port = int(line.split()[1])
            if line.startswith("ready"):
                return
        raise Exception("the engine does not start: " + open(self.log.name).read())

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.p.poll() is None:
            self.p.terminate()
            status = self.p.wait(10)
        else:
            status = self.p.returncode
        if kind is None and status != 0:
            raise Exception("the engine ended with %d: %s" % (status, self.said()[-3000:]))

    def said(self):
        return open(self.log.name).read()

    def rss(self):
        return int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % self.p.pid).read()).group(1))

    def wait_said(self, text, seconds=5):
        until = time.time() + seconds
        while text not in self.said():
            if time.time() > until:
                raise Exception("not said: %s\n%s" % (text, self.said()[-2000:]))
            time.sleep(0.01)

    def conn(self):
        return Conn(self)


class Conn:
    def __init__(self, server=None, sock=None):
        if sock is None:
            if server.unix:
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(server.unix)
            else:
                sock = socket.create_connection(("127.0.0.1", server.port))
        self.s = sock
        if sock.family == socket.AF_INET:
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.settimeout(20)
        self.data = b""

    def send(self, *parts):
        for p in parts:
            self.s.sendall(p.encode() if isinstance(p, str) else p)
        return self

    def line(self):
        while b"\r\n" not in self.data:
            self.more()
        line, self.data = self.data.split(b"\r\n", 1)
        return line.decode("latin1")

    def more(self):
        got = self.s.recv(65536)
        if not got:
            raise EOFError("closed; so far: %r" % self.data[:200])
        self.data += got

    def take(self, n):
        while len(self.data) < n:
            self.more()
        out, self.data = self.data[:n], self.data[n:]
        return out

    def head(self):
        first = self.line()
        while first.startswith("HTTP/1.1 100"):
            assert self.line() == ""
            first = self.line()
        self.headers = {}
        while True:
            h = self.line()
            if not h:
                break
            k, v = h.split(":", 1)
            self.headers[k.lower()] = v.strip()
        return int(first.split()[1])

    def chunk(self):
        n = int(self.line(), 16)
        data = self.take(n)
        assert self.take(2) == b"\r\n"
        return data

    def answer(self, method="GET"):
        """Status and body of a whole answer."""
        status = self.head()
        if method == "HEAD" or status in (204, 304):
            return status, b""
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                c = self.chunk()
                if not c:
                    return status, body
                body += c
        return status, self.take(int(self.headers["content-length"]))

    def get(self, path, *headers):
        self.send("GET %s HTTP/1.1\r\nHost: x\r\n" % path, *[h + "\r\n" for h in headers], "\r\n")
        return self.answer()

    def closed(self, seconds=5):
        """Waits until the server has closed; what it still sent."""
        self.s.settimeout(seconds)
        try:
            while True:
                got = self.s.recv(65536)
                if not got:
                    return self.data
                self.data += got
        except ConnectionResetError:
            return self.data

    def close(self):
        self.s.close()


def is_(what, got, want):
    if got != want:
        raise Exception("%s is %r, not %r" % (what, got, want))


def websocket(s, path, *headers):
    c = s.conn()
    key = base64.b64encode(os.urandom(16)).decode()
    c.send("GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n" % (path, key), *[h + "\r\n" for h in headers], "\r\n")
    status = c.head()
    if status != 101:
        raise Exception("no websocket: %d" % status)
    want = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    is_("accept", c.headers["sec-websocket-accept"], want)
    return c


def frame(op, data, fin=True, mask=True, rsv=0):
    data = data.encode() if isinstance(data, str) else data
    head = bytes([(0x80 if fin else 0) | rsv | op])
    bit = 0x80 if mask else 0
    if len(data) < 126:
        head += bytes([bit | len(data)])
    elif len(data) < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", len(data))
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", len(data))
    if not mask:
        return head + data
    key = os.urandom(4)
    return head + key + bytes(b ^ key[i % 4] for i, b in enumerate(data))


def frame_read(c):
    a, b = c.take(2)
    n = b & 0x7f
    if n == 126:
        n = struct.unpack("!H", c.take(2))[0]
    elif n == 127:
        n = struct.unpack("!Q", c.take(8))[0]
    assert not b & 0x80, "a server does not mask"
    return a & 15, c.take(n)


def closed_with(c, code):
    op, data = frame_read(c)
    is_("close", (op, struct.unpack("!H", data[:2])[0] if code else None), (8, code))
    c.closed()
