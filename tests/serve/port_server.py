"""A server inside a box, for tests of ports: tells what it got, streams, upgrades, and misbehaves on request."""
import http.server
import json
import socketserver
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            out = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                out += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    return out
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status, data, *fields):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def raw(self, text):
        self.wfile.write(text)
        self.wfile.flush()
        self.close_connection = True

    def do_any(self):
        path = self.path.split("?")[0]
        if self.headers.get("Upgrade"):
            # anything at all: bytes come back in capitals
            self.raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\nX-Said: yes\r\n\r\nhello")
            while True:
                data = self.connection.recv(65536)
                if not data:
                    return
                self.connection.sendall(data.upper())
        if path == "/sse":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for i in range(200):
                    data = b"data: %d\n\n" % i
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
                    time.sleep(0.5)
            except OSError:
                open("/tmp/sse-ended", "w").write("yes")
            return
        if path == "/size":
            return self.answer(200, b"%d\n" % len(self.body()))
        if path == "/big":
            self.send_response(200)
            self.send_header("Content-Length", str(64 << 20))
            self.end_headers()
            for _ in range(64):
                self.wfile.write(b"x" * (1 << 20))
            return
        if path == "/close":
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end")
        if path == "/cookies":
            return self.answer(200, b"ok", ("Set-Cookie", "a=1; Domain=localhost; Path=/"), ("Set-Cookie", "b=2"),
                               ("Set-Cookie", "den_session=ses_evil"),
                               ("Set-Cookie", "__Host-den_session=ses_evil; Secure; Path=/"), ("Set-Cookie", "den-token=evil"))
        if path == "/early":  # answers without reading the body
            return self.raw(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n")
        if path == "/two-lengths":
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")
        if path == "/both":
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        if path == "/bare-lf":
            return self.raw(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi")
        if path == "/second":  # a second answer behind the first: must never be seen
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        if path == "/cut":
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        if path == "/garbage":
            return self.raw(b"SSH-2.0-nothing\r\n")
        if path == "/empty":
            self.send_response(204)
            self.end_headers()
            return
        data = json.dumps({"method": self.command, "path": self.path, "headers": self.headers.items(),
                           "body": self.body().decode("latin-1")}).encode()
        return self.answer(200, data, ("Content-Type", "application/json"), ("X-Mine", "1"))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_PROPFIND = do_any


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
