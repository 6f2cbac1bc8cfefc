"""What the tests of den serve share in Python: HTTP, server-sent events, WebSocket, a check against openapi.yaml.

Standard library alone. DEN_URL and DEN_KEY say which server (kit.sh sets them)."""
import base64, http.client, json, os, re, socket, struct, sys, time, urllib.parse

URL = os.environ.get("DEN_URL", "")
KEY = os.environ.get("DEN_KEY", "")
DEN = os.environ.get("DEN", "den")


def fail(text):
    sys.exit("FAILED: " + text)


def check(ok, text):
    if not ok:
        fail(text)


def q(text):
    """bytes or text, for a query"""
    return urllib.parse.quote(text, safe="")


def b64(data):
    return base64.b64encode(data).decode()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "%d %r" % (self.status, self.body[:600])


def address():
    u = urllib.parse.urlsplit(URL)
    return u.hostname, u.port


class Api:
    """One connection, kept alive. Calls are remembered for who wants to compare them with a description."""

    seen = None  # list of (method, path, query names, body or None, Answer)

    def __init__(self, key=None, timeout=60):
        self.key, self.timeout, self.conn = KEY if key is None else key, timeout, None

    def raw(self, method, path, data=None, headers=None):
        head = {"Authorization": "Bearer " + self.key} if self.key else {}
        head.update(headers or {})
        for again in (False, True):
            if self.conn is None:
                self.conn = http.client.HTTPConnection(*address(), timeout=self.timeout)
            try:
                self.conn.request(method, path, body=data, headers=head, encode_chunked="Transfer-Encoding" in head)
                r = self.conn.getresponse()
                body = r.read()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.close()
                if again or method not in ("GET", "HEAD"):
                    raise
        return Answer(r.status, {k.lower(): v for k, v in r.getheaders()}, body)

    def call(self, method, path, body=None, want=None, data=None, headers=None):
        """want: a status, or several. body: JSON; data: bytes."""
        head = dict(headers or {})
        sent = data
        if body is not None:
            sent = json.dumps(body).encode()
            head.setdefault("Content-Type", "application/json")
        elif data is not None:
            head.setdefault("Content-Type", "application/octet-stream")
        a = self.raw(method, path, sent, head)
        if Api.seen is not None:
            Api.seen.append((method, path, body, a))
        if want is not None:
            wanted = want if isinstance(want, tuple) else (want,)
            check(a.status in wanted, "%s %s: %r, not %s" % (method, path, a, want))
        return a

    def get(self, path, want=200):
        return self.call("GET", path, want=want)

    def post(self, path, body=None, want=200, **more):
        return self.call("POST", path, {} if body is None else body, want=want, **more)

    def close(self):
        if self.conn:
            self.conn.close()
        self.conn = None

    # ---- server-sent events ----
    def events(self, method, path, body=None, headers=None, timeout=30):
        return Events(self, method, path, body, headers, timeout)

    # ---- boxes ----
    def box(self, want=201, **spec):
        return self.post("/v1/boxes", spec, want).json["id"]

    def sh(self, box, command, want=0, **more):
        o = self.post("/v1/boxes/%s/execs" % box, dict(command=command, **more)).json
        if want is not None:
            check(o["exited"] and o["status"] == want, "%s: %r" % (command, o))
        return o


class Events:
    """Iterates over (event, id, data). Ends with the stream."""

    def __init__(self, api, method, path, body, headers, timeout):
        self.sock = socket.create_connection(address(), timeout=timeout)
        sent = json.dumps(body).encode() if body is not None else b""
        head = {"Host": "%s:%d" % address(), "Authorization": "Bearer " + api.key, "Accept": "text/event-stream",
                "Connection": "close"}
        if body is not None:
            head.update({"Content-Type": "application/json", "Content-Length": str(len(sent))})
        head.update(headers or {})
        text = "%s %s HTTP/1.1\r\n%s\r\n" % (method, path, "".join("%s: %s\r\n" % kv for kv in head.items()))
        self.sock.sendall(text.encode() + sent)
        self.response = http.client.HTTPResponse(self.sock, method=method)
        self.response.begin()
        self.status = self.response.status
        self.comments = 0
        if Api.seen is not None:
            Api.seen.append((method, path, body, Answer(self.status, {k.lower(): v for k, v in self.response.getheaders()}, b"")))

    def __iter__(self):
        return self

    def __next__(self):
        event, number, data = None, None, []
        while True:
            line = self.response.readline()
            if not line:
                raise StopIteration
            line = line.rstrip(b"\n").decode()
            if not line:
                if event is not None or data:
                    return event, number, json.loads("\n".join(data)) if data else None
                continue
            if line.startswith(":"):
                self.comments += 1
                continue
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "id":
                number = value
            elif name == "data":
                data.append(value)
            else:
                fail("a line of the stream: %r" % line)

    def until(self, event):
        for e in self:
            if e[0] == event:
                return e
        fail("the stream ended before '%s'" % event)

    def body(self):
        return self.response.read()

    def close(self):
        self.response.close()
        self.sock.close()


class Ws:
    """RFC 6455, as a client: masked, unfragmented."""

    def __init__(self, path, key=None, headers=None, timeout=30):
        self.sock = socket.create_connection(address(), timeout=timeout)
        nonce = base64.b64encode(os.urandom(16)).decode()
        head = {"Host": "%s:%d" % address(), "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": nonce,
                "Sec-WebSocket-Version": "13", "Authorization": "Bearer " + (KEY if key is None else key)}
        head.update(headers or {})
        self.sock.sendall(("GET %s HTTP/1.1\r\n%s\r\n" % (path, "".join("%s: %s\r\n" % kv for kv in head.items()))).encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            part = self.sock.recv(65536)
            check(part, "the server hung up: %r" % self.rest)
            self.rest += part
        top, self.rest = self.rest.split(b"\r\n\r\n", 1)
        self.status = int(top.split()[1])
        if Api.seen is not None:
            Api.seen.append(("GET", path, None, Answer(self.status, {}, b"")))
        check(self.status == 101, "no WebSocket: %r %r" % (top, self.rest))

    def need(self, n):
        while len(self.rest) < n:
            part = self.sock.recv(65536)
            if not part:
                return False
            self.rest += part
        return True

    def send(self, data, text=False):
        mask = os.urandom(4)
        n = len(data)
        head = bytes([0x81 if text else 0x82])
        head += bytes([0x80 | n]) if n < 126 else bytes([0xFE]) + struct.pack(">H", n) if n < 65536 else bytes([0xFF]) + struct.pack(">Q", n)
        masked = bytes(c ^ mask[i & 3] for i, c in enumerate(data))
        self.sock.sendall(head + mask + masked)

    def say(self, value):
        self.send(json.dumps(value).encode(), True)

    def next(self):
        """("text", value), ("bytes", data) or None: closed"""
        while True:
            if not self.need(2):
                return None
            kind, n = self.rest[0] & 15, self.rest[1] & 127
            at = 2
            if n >= 126:
                size = 2 if n == 126 else 8
                if not self.need(2 + size):
                    return None
                n = int.from_bytes(self.rest[2:2 + size], "big")
                at += size
            if not self.need(at + n):
                return None
            data, self.rest = self.rest[at:at + n], self.rest[at + n:]
            if kind == 8:
                return None
            if kind == 9:
                self.sock.sendall(bytes([0x8A, 0x80, 0, 0, 0, 0]))
            elif kind == 1:
                return "text", json.loads(data)
            elif kind == 2:
                return "bytes", data

    def until(self, pattern):
        """reads output until it matches; gives all of it"""
        got = b""
        while not re.search(pattern, got):
            m = self.next()
            check(m is not None, "closed before %r: %r" % (pattern, got))
            if m[0] == "bytes":
                got += m[1]
        return got

    def close(self):
        self.sock.close()


def soon(seconds, fn, what):
    end = time.monotonic() + seconds * int(os.environ.get("DEN_TEST_SLOW", "1"))
    while True:
        v = fn()
        if v:
            return v
        check(time.monotonic() < end, "not within %d s: %s" % (seconds, what))
        time.sleep(0.05)
