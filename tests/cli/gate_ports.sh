# The other way: a port of a box, reached from this machine, when asked for and not otherwise.
source "$TESTS/gate/kit.sh"

# serves BOX PORT: an echo in the box that greets
serves() {
	"$DEN" exec "$1" -- /usr/bin/python3 -c '
import socket, sys, threading
def one(c):
    c.sendall(b"hello from '"$2"'\n")
    while True:
        d = c.recv(65536)
        if not d: break
        c.sendall(d)
    c.close()
s = socket.create_server((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[1])), family=socket.AF_INET6 if ":" in (sys.argv + ["", ""])[2] else socket.AF_INET)
open("/root/ready'"$2"'", "w")
while True:
    c, _ = s.accept()
    threading.Thread(target=one, args=(c,), daemon=True).start()' "$2" "${@:3}" >/dev/null 2>&1 &
	soon 5 "$DEN" exec "$1" -- test -e "/root/ready$2"
}

# hear PORT [TEXT]: what comes from there on this machine
hear() {
	/usr/bin/python3 -c '
import socket, sys
try:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=3)
    f = s.makefile("rwb")
    print(f.readline().decode().strip())
    if len(sys.argv) > 2:
        f.write(sys.argv[2].encode() + b"\n"); f.flush()
        print(f.readline().decode().strip())
except OSError as e: print(type(e).__name__)' "$@"
}

port_of() {
	sed 's/.*:\([0-9]*\).*/\1/' <<<"$1"
}

#@ root user range net
test_port_prints_a_url_that_leads_into_the_box() {
	local b url p
	net_up
	b=$(den create --name web)
	serves "$b" 3000
	url=$(den port web 3000)
	[[ $url =~ ^http://127\.0\.0\.1:[0-9]+/$ ]] || fail "'$url'"
	p=$(port_of "$url")
	is 'what is there' "$(hear "$p" ping)" "$(printf 'hello from 3000\nping')"
	# asked again, the same; asked for none, all of them
	is 'the URL' "$(den port web 3000)" "$url"
	try den port web
	want_out_has "^3000 .*$url"
	den port --json web | is_json
	# only that: no other port of the box, no other address of this machine
	try curl -sS -m 2 http://$PUB:$p/
	want_rc 7
	den port --close web 3000
	is 'after that' "$(hear "$p")" ConnectionRefusedError
	try den port web
	not grep -q 3000 <<<"$out" || fail "$out"
}

#@ root user range net
test_published_port_gives_the_box_no_way_out() {
	local b p
	net_up
	b=$(net_box)
	serves "$b" 3000
	p=$(port_of "$(den port "$b" 3000)")
	is 'what is there' "$(hear "$p")" 'hello from 3000'
	for a in $PUB $PRIV $META 127.0.0.1; do echo "tcp $a 80"; done >tries
	echo "tcp 127.0.0.1 $p" >>tries
	all_say 'ECONNREFUSED|ENETUNREACH' "$b" <tries
	inside "$b" curl -sS -m 3 http://a.test/
	want_rc 6
	want_nothing .
}

#@ root user net
test_published_port_stays_over_stop_start_and_deaths() {
	local b p
	net_up
	b=$(den create --name web)
	serves "$b" 3000
	p=$(port_of "$(den port web 3000)")
	kill -9 "$(gate_pid "$b")"
	soon 5 has "$p" || fail 'gone with the gate'
	kill -9 "$(field "$b" keeper_pid)"
	den exec "$b" -- true
	soon 5 has "$p" || fail 'gone with the keeper'
	den stop web
	is 'when stopped' "$(hear "$p")" ConnectionRefusedError
	den start web
	serves "$b" 3000
	soon 5 has "$p" || fail 'gone with the box'
	den rm --force web
	is 'when deleted' "$(hear "$p")" ConnectionRefusedError
}

has() {
	hear "$1" | grep -q 'hello from'
}

#@ root user net
test_published_port_and_its_connections_outlive_a_change_of_policy() {
	local b p
	net_up
	b=$(allowed a.test:7000)
	serves "$b" 3000
	p=$(port_of "$(den port "$b" 3000)")
	exec 7<>"/dev/tcp/127.0.0.1/$p"
	read -r -t 3 line <&7
	is greeting "$line" 'hello from 3000'
	den policy set "$b" --allow b.test >/dev/null
	den policy set "$b" --clear --allow b.test >/dev/null
	echo still >&7
	read -r -t 3 line <&7
	is 'the same connection' "$line" still
	is 'the same port' "$(hear "$p")" 'hello from 3000'
	is 'what is told' "$(den port "$b" 3000)" "http://127.0.0.1:$p/"
	exec 7>&-
}

#@ root user net
test_port_nobody_listens_at_is_closed_at_once_and_works_later() {
	local b p began
	net_up
	b=$(den create)
	p=$(port_of "$(den port "$b" 3000)")
	began=$(now_ms)
	[ -z "$(hear "$p")" ] || [ "$(hear "$p")" = ConnectionResetError ] || fail "$(hear "$p")"
	at_most ms $(($(now_ms) - began)) 2000
	serves "$b" 3000
	soon 3 has "$p" || fail 'never'
}

#@ root user net
test_ports_of_many_boxes_and_both_families_stay_apart() {
	local b c p q r
	net_up
	b=$(den create)
	c=$(den create)
	serves "$b" 3000
	serves "$b" 3001 ::1
	serves "$c" 3002
	p=$(port_of "$(den port "$b" 3000)")
	q=$(port_of "$(den port "$b" 3001)")
	r=$(port_of "$(den port "$c" 3002)")
	is first "$(hear "$p")" 'hello from 3000'
	is second "$(hear "$q")" 'hello from 3001'
	is third "$(hear "$r")" 'hello from 3002'
	# one that is taken is said to be
	try den port "$b" 3005 --as "$r"
	[ "$rc" != 0 ] || fail 'two at one port'
	try den port "$b" 0
	want_rc 2
	try den port "$b" 70000
	want_rc 2
}

#@ root user range net
test_forward_leads_into_boxes_until_it_ends() {
	local b f
	net_up
	b=$(den create --name web)
	serves "$b" 3000
	serves "$b" 3001
	"$DEN" forward 18080:web:3000 18081:web:3001 >fwd 2>&1 &
	f=$!
	soon 5 has 18080 || fail "$(cat fwd)"
	is first "$(hear 18080 ping)" "$(printf 'hello from 3000\nping')"
	is second "$(hear 18081)" 'hello from 3001'
	# much at once, both ways
	/usr/bin/python3 -c '
import socket, threading
def one(i):
    s = socket.create_connection(("127.0.0.1", 18080)); s.recv(100)
    data = bytes([i]) * 300000
    t = threading.Thread(target=s.sendall, args=(data,)); t.start()
    got = b""
    while len(got) < len(data): got += s.recv(65536)
    assert got == data
ts = [threading.Thread(target=one, args=(i,)) for i in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]'
	kill -INT $f
	wait $f || :
	is 'after that' "$(hear 18080)" ConnectionRefusedError
	try den forward 18080:nobox:3000
	want_rc 3
	try den forward 18080:web
	want_rc 2
}
