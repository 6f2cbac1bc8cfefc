# The gate over a box's life, and what is left when it, its keeper or the box ends or dies.
source "$TESTS/gate/kit.sh"

# talk BOX PORT: a program in the box that keeps a connection and says a line whenever told to
talk() {
	mkfifo say
	"$DEN" exec "$1" -- /usr/bin/python3 -u -c '
import socket, sys
s = socket.create_connection(("a.test", '"$2"'))
print("up")
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        print(s.recv(1000).decode().strip() or "end")
    except OSError as e:
        print(type(e).__name__)' <say >heard 2>&1 &
	exec 8>say
	soon 5 grep -q up heard || fail "$(cat heard)"
}

heard() {
	tail -n 1 heard | grep -Eqx "$1"
}

#@ root user range net
test_killed_gate_ends_connections_and_another_takes_its_place() {
	local b p q
	net_up
	b=$(allowed a.test a.test:7000)
	p=$(gate_pid "$b")
	talk "$b" 7000
	kill -9 "$p"
	echo one >&8
	soon 3 heard '.*Error|end' || fail "$(cat heard)"
	exec 8>&-
	soon 5 "$DEN" exec "$b" -- curl -sS -m 2 -o /dev/null http://a.test/ || fail 'never up again'
	q=$(gate_pid "$b")
	[ "$p" != "$q" ] || fail 'the same gate'
	want_journal "$b" '"kind":"gate".*started again'
	inside "$b" curl -sS http://b.test/
	want_rc 6
}

#@ root user net
test_box_is_closed_while_its_gate_is_dead() {
	local b k
	net_up
	b=$(allowed a.test)
	k=$(field "$b" keeper_pid)
	inside "$b" curl -sS http://a.test/x
	want_rc 0
	mkfifo line
	"$DEN" exec "$b" -- /usr/bin/python3 -c '
import socket, sys, time
a = socket.gethostbyname("a.test")
print("go", flush=True)
sys.stdin.readline()
time.sleep(0.4)
r = []
for host in (a, "192.175.48.5", "10.9.8.7"):
    s = socket.socket()
    s.settimeout(2)
    r.append(s.connect_ex((host, 80)))
print(*r, flush=True)' <line >result &
	exec 8>line
	soon 5 grep -q go result
	: >"$KIT/log"
	echo x >&8
	sleep 0.1
	kill -STOP "$k"
	kill -9 "$(pgrep -x den-gate -P "$k")"
	sleep 0.8
	kill -CONT "$k"
	soon 5 grep -q '^111 111 111$' result || fail "$(cat result)"
	not grep -q ^open "$KIT/log" || fail "$(cat "$KIT/log")"
	exec 8>&-
}

#@ root user range net
test_killed_keeper_leaves_connections_open_and_the_next_one_adopts() {
	local b g
	net_up
	b=$(allowed a.test:7000 a.test)
	g=$(gate_pid "$b")
	"$DEN" exec --tag talker "$b" -- /usr/bin/python3 -u -c '
import os, socket, time
s = socket.create_connection(("a.test", 7000))
open("/root/up", "w")
while not os.path.exists("/root/go"): time.sleep(0.02)
s.sendall(b"after\n")
open("/root/heard", "wb").write(s.recv(100))' >/dev/null 2>&1 &
	soon 5 "$DEN" exec "$b" -- test -e /root/up
	kill -9 "$(field "$b" keeper_pid)"
	den exec "$b" -- touch /root/go
	soon 5 "$DEN" exec "$b" -- grep -q after /root/heard || fail 'the connection is gone'
	alive "$g" || fail 'the gate is gone'
	inside "$b" curl -sS http://a.test/x
	want_out 'served a.test /x'
	# it is the new keeper's now: policies reach it, and what it tells is written down
	den policy set "$b" --drop a.test >/dev/null
	inside "$b" curl -sS -m 3 http://a.test/x
	[ "$rc" != 0 ] || fail "$(told)"
	want_journal "$b" '"kind":"connection".*"port":80'
	alive "$g" || fail 'the gate is gone'
	den rm --force "$b"
	soon 3 dead "$g" || fail 'the gate stayed behind'
}

#@ root user range net
test_stop_and_start_bring_the_same_way_out() {
	local b g
	net_up
	b=$(allowed a.test)
	g=$(gate_pid "$b")
	den stop "$b"
	soon 3 dead "$g" || fail 'the gate outlived the box'
	den start "$b"
	inside "$b" curl -sS http://a.test/x
	want_out 'served a.test /x'
	inside "$b" curl -sS http://b.test/
	want_rc 6
	is 'gates' "$(gate_pid "$b" | wc -l)" 1
}

#@ root user net
test_fork_has_a_gate_of_its_own() {
	local b f g h
	net_up
	b=$(allowed a.test)
	inside "$b" curl -sS http://a.test/x
	want_rc 0
	f=$(den fork "$b" | tail -n 1)
	den start "$f" 2>/dev/null || :
	inside "$f" curl -sS http://a.test/fork
	want_out 'served a.test /fork'
	g=$(gate_pid "$b")
	h=$(gate_pid "$f")
	[ "$g" != "$h" ] || fail 'one gate for two'
	# what one is denied later, the other is not
	den policy set "$f" --drop a.test --allow b.test >/dev/null
	inside "$f" curl -sS -m 3 http://a.test/
	want_rc 6
	inside "$b" curl -sS http://a.test/y
	want_out 'served a.test /y'
	inside "$b" curl -sS -m 3 http://b.test/
	want_rc 6
	want_denial "$b" b.test
	not denied "$f" '"host":"b.test"' || fail 'told in the wrong box'
}

#@ root user range net
test_gate_has_no_privilege_and_no_files() {
	local b g
	net_up
	b=$(allowed a.test)
	g=$(gate_pid "$b")
	is seccomp "$(awk '/^Seccomp:/ { print $2 }' /proc/$g/status)" 2
	is 'new privileges' "$(awk '/^NoNewPrivs:/ { print $2 }' /proc/$g/status)" 1
	is capabilities "$(awk '/^Cap(Prm|Eff|Inh|Amb):/ { print $2 }' /proc/$g/status | sort -u)" 0000000000000000
	if [ "$VARIANT" = root ]; then
		is 'its files' "$(ls -A /proc/$g/root/)" ''
		[ "$(awk '/^Uid:/ { print $2 }' /proc/$g/status)" != 0 ] || fail 'the gate is root'
		is groups "$(awk '/^Groups:/ { print $2 }' /proc/$g/status)" ''
	fi
}

#@ root user net waits
test_a_box_through_whose_gate_something_goes_is_not_idle() {
	local b
	net_up
	b=$(net_box --allow a.test:7000 --idle 1500ms --on-idle stop)
	den exec --detach "$b" -- /usr/bin/python3 -c '
import socket, time
s = socket.create_connection(("a.test", 7000))
for i in range(20):
    s.sendall(b"x\n")
    s.recv(100)
    time.sleep(0.25)' >/dev/null
	sleep 4
	is state "$(field "$b" state)" running
	soon 15 is_stopped "$b" || fail 'never idle'
}

is_stopped() {
	[ "$(field "$1" state)" = stopped ]
}
