# Into the box: ports that were asked for, and no others.

# serve BOX PORT [ADDRESS]: a web server in the box; it answers with its own port.
serve() {
	den exec -d "$1" -- /usr/bin/python3 -c '
import http.server, socketserver, socket, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        b = b"port %s\n" % sys.argv[1].encode()
        self.send_response(200); self.send_header("content-length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
    request_queue_size = 64
S((sys.argv[2], int(sys.argv[1])), H).serve_forever()' "$2" "${3:-127.0.0.1}" >/dev/null
	for _ in $(seq 100); do
		den exec "$1" -- sh -c "grep -qi ':$(printf %04X "$2") ' /proc/net/tcp /proc/net/tcp6" && return 0
		sleep 0.05
	done
	fail "no server on port $2"
}

#@ root
test_port_by_number_is_that_one_or_none() {
	local b c
	b=$(den create)
	c=$(den create)
	serve "$b" 3000
	is url "$(den port "$b" 3000 --as 41873)" 'http://127.0.0.1:41873/'
	try den port "$c" 3000 --as 41873
	[ "$rc" != 0 ] || fail 'two boxes have one port'
	want_err_has 'in use'
	is nothing "$(den port --json "$c")" '[]'
}

#@ root user
test_hundred_connections_through_a_port_at_once() {
	local b url
	b=$(den create)
	serve "$b" 3000
	url=$(den port "$b" 3000)
	is answers "$(seq 100 | xargs -P 20 -I{} curl -sS -m 10 "$url" | sort | uniq -c | tr -s ' ')" ' 100 port 3000'
}

#@ root user
test_any_bytes_pass_a_port_in_both_directions() {
	local b url
	b=$(den create)
	# an echo that waits for the end: half-closing passes, too
	den exec -d "$b" -- /usr/bin/python3 -c '
import socket, threading
s = socket.create_server(("127.0.0.1", 5000), backlog=16)
def one(c):
    d = b""
    while (x := c.recv(65536)): d += x
    c.sendall(d[::-1]); c.close()
while True: threading.Thread(target=one, args=(s.accept()[0],)).start()' >/dev/null
	sleep 0.5
	url=$(den port "$b" 5000)
	/usr/bin/python3 - "${url#http://127.0.0.1:}" <<'PY'
import os, socket, sys
d = os.urandom(3000000)
c = socket.create_connection(("127.0.0.1", int(sys.argv[1].rstrip("/"))))
c.sendall(d); c.shutdown(socket.SHUT_WR)
r = b""
while (x := c.recv(65536)): r += x
assert r == d[::-1], (len(r), len(d))
PY
}

#@ root user
test_an_answer_to_what_was_not_read_arrives() {
	local b url
	b=$(den create)
	den exec -d "$b" -- /usr/bin/python3 -c '
import socket
s = socket.create_server(("127.0.0.1", 5000), backlog=16)
while True:
    c = s.accept()[0]
    c.recv(1000); c.sendall(b"too much"); c.close()' >/dev/null
	sleep 0.5
	url=$(den port "$b" 5000)
	/usr/bin/python3 - "${url#http://127.0.0.1:}" <<'PY'
import socket, sys
for i in range(20):
    c = socket.create_connection(("127.0.0.1", int(sys.argv[1].rstrip("/"))), 20)
    r = b""
    try:
        for _ in range(200): c.sendall(b"x" * 100000)
    except OSError: pass
    try:
        while (x := c.recv(1000)): r += x
    except OSError: pass
    assert r == b"too much", (i, r)
PY
}
