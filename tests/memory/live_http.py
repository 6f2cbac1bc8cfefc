"""An HTTP server, and clients inside the box that keep their connections: see memory.h for the protocol."""
import http.client
import http.server
import os
import sys
import threading

hits = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.served = 0  # on this connection

    def do_GET(self):
        global hits
        hits += 1
        self.served += 1
        text = b"%d %d" % (hits, self.served)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
clients = [http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20) for _ in range(3)]
asked = steps = 0


def ask(client):
    client.request("GET", "/")
    return client.getresponse().read().split()


def check():
    """Each client is still on its first connection, and the server has forgotten none."""
    global asked
    for c in clients:
        asked += 1
        total, here = ask(c)
        if int(here) != asked // len(clients) + (asked % len(clients) > 0):
            return "FAIL: this connection served %d, not %d" % (int(here), asked // len(clients))
    fresh = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    total, here = ask(fresh)
    fresh.close()
    return "ok" if int(here) == 1 and int(total) == hits else "FAIL: a new connection"


print("ready" if check() == "ok" else "FAIL: before it began", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "step":
        steps += 1
    try:
        answer = check() if word == "check" else "ok %d" % steps if word == "count" else "ok"
    except OSError as e:
        answer = "FAIL: %s" % e
    print(answer, flush=True)
os._exit(0)
