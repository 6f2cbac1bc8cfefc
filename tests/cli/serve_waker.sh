# Published ports of boxes on disk: where a server runs, who connects wakes the box.
source "$TESTS/serve/kit.sh"

# A web server in the box that says how often it was asked; sets $URL_OF
counting() {
	den exec -d "$1" -- /usr/bin/python3 -c '
import http.server
n = 0
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global n
        n += 1
        b = b"%d\n" % n
        self.send_response(200); self.send_header("content-length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 3000), H).serve_forever()' >/dev/null
	URL_OF=$(den port "$1" 3000)
	soon 20 curl -sS -m 2 -o /dev/null "$URL_OF" || fail 'the server in the box does not answer'
}

ask() {
	curl -sS -m 40 "$URL_OF"
}

refused() {
	not curl -sS -m 2 "$URL_OF"
}

held() { # somebody listens at it
	/usr/bin/python3 -c 'import socket,sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)' "$(sed 's/.*:\([0-9]*\).*/\1/' <<<"$URL_OF")" 2>/dev/null
}

#@ root timeout=180
test_connection_to_a_published_port_wakes_a_box_on_disk() {
	local b n port
	can_save
	serve_start
	b=$(den create)
	counting "$b"
	n=$(ask)
	port=$(den port --json "$b")
	den pause --disk "$b" >/dev/null
	is 'no process of it' "$(field "$b" init_pid)" 0
	is 'woken, with what it had in memory' "$(ask)" $((n + 1))
	is 'it runs' "$(state_of "$b")" running
	is 'at the same port' "$(den port --json "$b")" "$port"
	# again, and by several at once
	den pause --disk "$b" >/dev/null
	is 'answers' "$(seq 8 | xargs -P 8 -I{} curl -sS -m 60 -o /dev/null -w '%{http_code}\n' "$URL_OF" | sort | uniq -c | tr -s ' ')" ' 8 200'
	# brought back by somebody else: the port is the box's
	den pause --disk "$b" >/dev/null
	den resume "$b"
	is 'the same port' "$(den port --json "$b")" "$port"
	ask >/dev/null
	# where it is hibernated there is nobody to answer in it, but it wakes
	den hibernate "$b"
	held || fail 'nobody listens for a hibernated box'
	soon 20 is_state "$b" running
	# deleted on disk: nobody is there any more
	den hibernate "$b"
	den rm -f "$b"
	soon 10 refused || fail 'the port of a box that is gone is held'
}

#@ root timeout=180
test_server_that_comes_back_holds_the_ports_of_boxes_on_disk() {
	local b n port
	can_save
	b=$(den create)
	counting "$b"
	n=$(ask)
	port=$(den port --json "$b")
	den pause --disk "$b" >/dev/null
	refused || fail 'without a server somebody listens'
	serve_start
	soon 10 held || fail 'the server does not hold the port'
	is 'woken' "$(ask)" $((n + 1))
	den pause --disk "$b" >/dev/null
	serve_stop
	refused || fail 'a server that ended holds it'
	serve_start
	kill -9 "$(pgrep -P "$SERVE_PID" -x den-waker)"
	soon 10 held || fail 'no other waker came'
	soon 20 is_state "$b" running
	is 'the same port' "$(den port --json "$b")" "$port"
	is 'and its memory' "$(($(ask) > n))" 1
}

# A server, and a box on disk whose images are gone: $b
unable() {
	can_save
	serve_start
	b=$(den create)
	counting "$b"
	den pause --disk "$b" >/dev/null
	mv "$DEN_STATE/memory/$b" "$TMP/away"
}

#@ root timeout=180
test_box_that_cannot_come_back_sends_away_who_connected() {
	local b
	unable
	refused || fail 'it answered'
	is 'it is on disk' "$(state_of "$b")" paused
	den rm -f "$b"
}

could_not() {
	grep -c 'could not be resumed' "$TMP/serve.log" || true
}

#@ root timeout=180
test_box_that_cannot_come_back_rests_before_it_is_tried_again() {
	local b
	unable
	# each is sent away in turn, or waits for the next attempt: never one attempt for each
	for _ in 1 2 3 4 5 6; do
		curl -sS -m 0.3 "$URL_OF" 2>/dev/null && fail 'it answered'
	done
	said() { [ "$(could_not)" -ge 1 ]; }
	soon 10 said || fail "nothing is said: $(serve_log)"
	[ "$(could_not)" -le 2 ] || fail "tried $(could_not) times: $(serve_log)"
	mv "$TMP/away" "$DEN_STATE/memory/$b"
	is 'whole again, it wakes' "$(ask | grep -c '^[0-9]')" 1
	den rm -f "$b"
}

#@ root timeout=180
test_few_boxes_are_woken_at_a_time() {
	local waker b ports=() all=()
	serve_start
	waker=$(pgrep -P "$SERVE_PID" -x den-waker)
	for _ in 1 2 3 4 5 6; do
		b=$(den create)
		ports+=("$(den port "$b" 3000 | sed 's/.*:\([0-9]*\).*/\1/')")
		den hibernate "$b"
		all+=("$b")
	done
	# all are asked for at once; how many resumes are there at a time?
	is 'at a time' "$(/usr/bin/python3 - "$waker" "${ports[@]}" <<'P'
import os, signal, socket, sys, time
waker = int(sys.argv[1])
os.kill(waker, signal.SIGSTOP)
held = [socket.create_connection(("127.0.0.1", int(p)), 5) for p in sys.argv[2:]]
os.kill(waker, signal.SIGCONT)
most, quiet, until = 0, 0, time.monotonic() + 60
while time.monotonic() < until and quiet < 500:
    with open(f"/proc/{waker}/task/{waker}/children") as f:
        n = len(f.read().split())
    most, quiet = max(most, n), 0 if n else quiet + 1
    time.sleep(0.002)
print(most)
P
)" 4
	for b in "${all[@]}"; do
		soon 20 is_state "$b" running || fail "$b was not woken"
	done
}

#@ root timeout=180
test_port_of_a_box_stopped_on_disk_is_not_held() {
	local b
	serve_start
	b=$(den create)
	URL_OF=$(den port "$b" 3000)
	den hibernate "$b"
	is 'on disk' "$(state_of "$b")" paused
	listened() { # looked at without a connection, which would end it
		grep -q "0100007F:$(printf %04X "${URL_OF##*:}") 00000000:0000 0A" /proc/net/tcp
	}
	unlistened() { ! listened; }
	listened || fail 'nobody listens for a hibernated box'
	den stop "$b" >/dev/null
	soon 5 unlistened || fail 'the port of a stopped box is held'
	is 'it stays stopped' "$(state_of "$b")" stopped
	den rm -f "$b"
}
