#!/usr/bin/python3
"""A server that secrets are for: secrets_kit.py DIR ADDRESS...

On every ADDRESS, at
  9080  in clear        9443  TLS with DIR/leaf.pem        9444  TLS with a certificate that nobody signed
  9445  TLS for another name                               9446  TLS with one that is no longer valid

What reached it is in DIR/seen, one line a request, written before the answer:
  PORT METHOD TARGET | header: value | ... | body BODY
and of bytes that are no HTTP: PORT raw BYTES.

Targets: /echo tells the request as it came, /chunked the same in pieces of three bytes, /close until the
connection ends, /head a header with the key in it, /gzip compressed although nobody asked, /accept what
Accept-Encoding said, /sse an event, and another when DIR/go is there, /to/URL a redirection, /ws echoes
after an upgrade, /sigv4 checks the signature with DIR/aws, /git/ is DIR/git, all others say "served".
"""
import gzip
import hashlib
import hmac
import http.server
import json
import os
import socketserver
import ssl
import sys
import threading
import time
import urllib.parse

DIR = sys.argv[1]
SEEN = os.open(DIR + "/seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def quote(text, keep=""):
    return urllib.parse.quote(text, safe="-_.~" + keep)


def sigv4(method, target, headers, body):
    """As AWS documents it, from the request alone. "right", or what is wrong."""
    secret, access_key = open(DIR + "/aws").read().split()
    words = headers.get("authorization", "").split(" ", 1)
    if words[0] != "AWS4-HMAC-SHA256" or len(words) < 2:
        return "not signed"
    part = dict(p.strip().split("=", 1) for p in words[1].split(","))
    key_id, day, region, service, end = part["Credential"].split("/")
    stamp = headers.get("x-amz-date", "")
    if key_id != access_key or end != "aws4_request" or not stamp.startswith(day):
        return "scope is wrong"
    path, _, query = target.partition("?")
    pairs = [tuple((p.split("=", 1) + [""])[:2]) for p in query.split("&") if p]
    pairs = sorted((quote(urllib.parse.unquote(a)), quote(urllib.parse.unquote(b))) for a, b in pairs)
    names = part["SignedHeaders"].split(";")
    if "host" not in names or "x-amz-date" not in names:
        return "too little is signed"
    path = quote(urllib.parse.unquote(path), "/")
    hashed = headers.get("x-amz-content-sha256") or sha(body)
    if hashed != "UNSIGNED-PAYLOAD" and hashed != sha(body):
        return "the body is another one"
    text = "\n".join([method, path if service == "s3" else quote(path, "/"), "&".join(a + "=" + b for a, b in pairs)] +
                     [n + ":" + " ".join(headers.get(n, "").split()) for n in names] + ["", ";".join(names), hashed])
    scope = "/".join((day, region, service, end))
    key = ("AWS4" + secret).encode()
    for word in (day, region, service, end):
        key = mac(key, word)
    want = mac(key, "\n".join(("AWS4-HMAC-SHA256", stamp, scope, sha(text.encode())))).hex()
    return "right" if hmac.compare_digest(want, part["Signature"]) else "signature is wrong"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                data += self.rfile.read(n)
                self.rfile.readline()
                if not n:
                    return data
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, data, status=200, more=()):
        self.send_response(status)
        for name, value in more:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def chunked(self, pieces, kind="text/plain"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for p in pieces:
            self.chunk(p)
        self.wfile.write(b"0\r\n\r\n")

    def events(self):
        key = self.headers.get("x-api-key", "-")
        yield ("data: first %s\n\n" % key).encode()
        while not os.path.exists(DIR + "/go"):
            time.sleep(0.02)
        os.write(SEEN, b"second event\n")
        yield b"data: second\n\n"

    def upgrade(self):
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        self.wfile.flush()
        self.close_connection = True
        while True:
            data = self.connection.recv(65536)
            if not data:
                return
            os.write(SEEN, ("%d raw %r\n" % (self.server.server_port, data)).encode())
            self.wfile.write(b"echo " + data)
            self.wfile.flush()

    def one(self):
        data = self.body()
        fields = ["%s: %s" % (k.lower(), v) for k, v in self.headers.items()]
        said = " | ".join(["%d %s %s" % (self.server.server_port, self.command, self.path)] + fields +
                          ["body " + repr(data.decode("latin-1"))[1:-1]])
        os.write(SEEN, (said + "\n").encode())
        path = self.path.split("?")[0]
        if path == "/echo":
            self.answer((said + "\n").encode())
        elif path == "/chunked":
            text = (said + "\n").encode()
            self.chunked(text[i:i + 3] for i in range(0, len(text), 3))
        elif path == "/close":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write((said + "\n").encode())
            self.close_connection = True
        elif path == "/head":
            self.answer(b"see above\n", 200, [("X-Your-Key", self.headers.get("x-api-key", "-"))])
        elif path == "/gzip":
            self.answer(gzip.compress(said.encode()), 200, [("Content-Encoding", "gzip")])
        elif path == "/sse":
            self.chunked(self.events(), "text/event-stream")
        elif path.startswith("/to/"):
            self.answer(b"elsewhere\n", 302, [("Location", self.path[4:])])
        elif path == "/ws":
            self.upgrade()
        elif path.startswith("/sigv4"):
            why = sigv4(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, data)
            self.answer((why + "\n").encode(), 200 if why == "right" else 403)
        elif path.startswith("/git/"):
            self.git(path)
        else:
            self.answer(b"served\n")

    def git(self, path):
        if "authorization" not in self.headers:
            self.answer(b"who?\n", 401, [("WWW-Authenticate", "Basic realm=git")])
            return
        try:
            self.answer(open(DIR + os.path.normpath(path), "rb").read())
        except OSError:
            self.answer(b"no\n", 404)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = one


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    cert = None

    def finish_request(self, request, client):
        if self.cert:
            ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ctx.load_cert_chain(DIR + "/" + self.cert)
            request.settimeout(20)
            request = ctx.wrap_socket(request, server_side=True)
            request.settimeout(None)
        try:
            super().finish_request(request, client)
        finally:
            request.close()

    def handle_error(self, *_):
        pass


def main():
    for a in sys.argv[2:]:
        for port, cert in ((9080, None), (9443, "leaf.pem"), (9444, "unknown.pem"), (9445, "other.pem"), (9446, "old.pem")):
            s = Server((a, port), Handler)
            s.cert = cert
            threading.Thread(target=s.serve_forever, daemon=True).start()
    open(DIR + "/secrets-ready", "w").close()
    threading.Event().wait()


if __name__ == "__main__":
    main()
