# The gvisor wall: a kernel of its own around the same box. What both walls promise is tested on both (tests/run
# --wall gvisor); here is what this one alone is.
source "$TESTS/gate/kit.sh"

need_runsc() {
	"$DEN" doctor | grep -q '^ok  *wall gvisor' || skip "no runsc on this machine: scripts/runtime.sh runsc"
}

# gbox [OPTION...]
gbox() {
	need_runsc
	box --wall gvisor "$@"
}

# What of runsc is on the host and belongs to the box.
sandbox_of() {
	pgrep -P "$(field "$1" init_pid)" -f runsc-sandbox
}

#@ root user range
test_a_box_has_a_kernel_of_its_own() {
	local b
	b=$(gbox)
	is wall "$(field "$b" wall)" gvisor
	not [ "$(den exec "$b" -- uname -r)" = "$(uname -r)" ] || fail "it sees the host's kernel"
	try den exec "$b" -- dmesg
	want_out_has 'Starting gVisor'
	is "process 1" "$(den exec "$b" -- cat /proc/1/comm)" den-init
	# --wall says it for one box, DEN_WALL for those that do not say
	DEN_WALL=gvisor try den run -- dmesg
	want_out_has 'Starting gVisor'
	DEN_WALL=gvisor try den run --wall container -- uname -r
	want_out "$(uname -r)"
	try den run --wall brick -- true
	want_rc 125
	want_err_has 'container, gvisor'
}

#@ root user range
test_without_runsc_it_is_refused_with_what_to_do() {
	mkdir none
	DEN_RUNTIME=$PWD/none try den run --wall gvisor -- true
	want_rc 125
	want_err_has runsc
	DEN_RUNTIME=$PWD/none try den doctor
	want_out_has 'limited +wall gvisor .*runsc'
}

#@ root user range
test_what_is_written_is_kept_over_stop_and_start() {
	local b
	b=$(gbox)
	den exec "$b" -- sh -c 'echo 1 >/tmp/t; echo 2 >/root/r; mkdir -p /var/x; ln -s ../../tmp/t /var/x/l; echo 3 >/run/gone'
	den stop "$b"
	den start "$b"
	is "what is there" "$(den exec "$b" -- sh -c 'cat /tmp/t /root/r /var/x/l; [ ! -e /run/gone ] && echo so')" \
		"$(printf '1\n2\n1\nso')"
}

#@ root
test_the_sentry_stands_in_the_boxs_own_namespaces_without_rights_on_the_host() {
	local b p s base
	b=$(gbox)
	base=$(awk '{ print $2 }' "/proc/$(field "$b" init_pid)/uid_map")
	at_least "first id" "$base" 65536
	for s in $(field "$b" init_pid) $(pgrep -P "$(field "$b" init_pid)"); do
		is "its id" "$(awk '/^Uid:/ { print $2 }' "/proc/$s/status")" "$base"
		is "no new privileges" "$(awk '/^NoNewPrivs:/ { print $2 }' "/proc/$s/status")" 1
		for p in user mnt pid net ipc uts cgroup; do
			not [ "$(readlink "/proc/$s/ns/$p")" = "$(readlink "/proc/self/ns/$p")" ] || fail "$p namespace of the host"
		done
		not [ -e "/proc/$s/root$DEN_STATE" ] || fail "it sees the state directory"
	done
	s=$(sandbox_of "$b")
	is "filter of the sentry" "$(awk '/^Seccomp:/ { print $2 }' "/proc/$s/status")" 2
	# nothing of runsc is in the host's mount table or on its disk
	not grep -q runsc /proc/self/mountinfo || fail "a mount is left in sight"
	is "state of runsc on disk" "$(find "$DEN_STATE/boxes" "$DEN_STATE/pool" -name '*runsc*' -o -name config.json | head -n 3)" ''
}

#@ root user
test_the_box_has_no_more_processes_than_its_limit() {
	local b
	b=$(gbox --pids 40)
	try timeout 50 "$DEN" exec "$b" -- /usr/bin/python3 -c '
import os, sys, time
n, p = 0, []
try:
    while n < 120:
        c = os.fork()
        if not c:
            time.sleep(30)
            os._exit(0)
        p.append(c)
        n += 1
except OSError as e: print(e.strerror)
print(n)
for c in p: os.kill(c, 9)'
	want_out_has 'temporarily unavailable'
	# the sentry counts those that are just starting late
	at_most processes "$(tail -n 1 <<<"$out")" 80
	at_least processes "$(tail -n 1 <<<"$out")" 20
	is "it goes on" "$(den exec "$b" -- echo x)" x
}

#@ root
test_the_host_never_has_more_of_its_tasks_than_it_can_end() {
	local b p n=0 f
	b=$(gbox --pids 100)
	p=$(field "$b" init_pid)
	# by whatever hierarchy counts here
	for f in /sys/fs/cgroup/pids/*"$b"*/pids.max /sys/fs/cgroup/den/*"$b"*/pids.max /sys/fs/cgroup/*/den/*"$b"*/pids.max; do
		[ -f "$f" ] || continue
		at_most "tasks of the host" "$(cat "$f")" 899
		n=1
	done
	is "a limit of the host's was found" $n 1
	alive "$p"
}

#@ root
test_a_dead_keeper_is_followed_by_another_one() {
	local b k
	b=$(gbox)
	den exec --detach --tag t "$b" -- sh -c 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done'
	k=$(field "$b" init_pid)
	kill -KILL "$(field "$b" keeper_pid)"
	is "the same box" "$(field "$b" init_pid)" "$k"
	is exec "$(den exec "$b" -- echo x)" x
	try timeout 2 "$DEN" attach "$b" t
	want_out_has '^1$'
	at_least lines "$(wc -l <<<"$out")" 5
}

#@ root
test_a_dead_sentry_is_the_end_of_the_box_and_leaves_nothing() {
	local b p s
	b=$(gbox)
	p=$(field "$b" init_pid)
	s=$(sandbox_of "$b")
	kill -KILL "$s"
	soon 10 is_state "$b" stopped || fail "it is $(state_of "$b")"
	soon 5 dead "$p"
	soon 5 not pgrep -f "runsc.*$b" >/dev/null
	den start "$b"
	is again "$(den exec "$b" -- echo x)" x
}

#@ root user
test_ps_shows_the_boxs_own_processes() {
	local b
	b=$(gbox)
	den exec --detach "$b" -- sh -c 'sleep 4321 & sleep 4321'
	soon 5 sh -c '"$DEN" ps "$1" | grep -q "sleep 4321"' sh "$b"
	try den ps "$b"
	want_out_has 'den-init'
	not grep -q runsc <<<"$out" || fail "it shows what runs on the host: $out"
}

#@ root
test_stats_count_the_boxs_own_processes() {
	local b
	b=$(gbox)
	is "of a fresh box" "$(den stats --once --json "$b" | grep -o '"pids":[0-9]*')" '"pids":1'
	den exec --detach "$b" -- sleep 4321
	soon 5 sh -c '"$DEN" stats --once --json "$1" | grep -q "\"pids\":2,"' sh "$b"
}

# Root of the box can stop init: who asks after that waits once, not each time.
#@ root
test_an_init_that_is_silent_is_not_waited_for_again() {
	local b t
	b=$(gbox)
	den exec --detach "$b" -- sh -c 'sleep 1; kill -STOP 1'
	sleep 2
	try timeout 20 "$DEN" stats --once --json "$b"
	want_rc 0
	want_out_has '"pids":null'
	t=$(now_ms)
	for _ in 1 2 3; do
		try timeout 20 "$DEN" stats --once --json "$b"
		want_rc 0
	done
	at_most milliseconds $(($(now_ms) - t)) 3000
}

#@ root
test_attacks_on_the_host_find_another_kernel() {
	local b before
	b=$(gbox)
	before=$(cat /proc/sys/kernel/core_pattern)
	try den exec "$b" -- sh -c '
		echo "|/tmp/x" >/proc/sys/kernel/core_pattern
		echo b >/proc/sysrq-trigger
		mount -t tmpfs none /mnt && echo mounted
		mount --bind / /mnt && echo bound
		unshare -m true && echo unshared
		mknod /root/disk b 254 0 && dd if=/root/disk of=/dev/null count=1 && echo disk
		dd if=/dev/mem of=/dev/null count=1 && echo memory
		cat /proc/1/environ >/dev/null && echo environ
		echo 250000 >/sys/fs/cgroup/pids/box/pids.max && echo more
		ls /proc/1/root/runsc && echo outside
		kill -9 -1; :'
	not grep -Eq 'mounted|bound|disk|memory|more|outside' <<<"$out" || fail "$(told)"
	is core_pattern "$(cat /proc/sys/kernel/core_pattern)" "$before"
	# init cannot be looked into by root of the box
	try den exec "$b" -- /usr/bin/python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, 1, 0, 0), os.strerror(ctypes.get_errno()))'
	want_out_has '^-1 '
	is "the box lives" "$(den exec "$b" -- echo x)" x
}

#@ root net
test_what_the_policy_allows_passes_and_nothing_else() {
	local b
	need_runsc
	net_up
	b=$(DEN_WALL=gvisor allowed a.test)
	inside "$b" curl -sS http://a.test/x
	want_out 'served a.test /x'
	inside "$b" curl -sS -m 3 http://b.test/
	want_rc 6
	poke "$b" tcp "$PUB" 80
	is "an address" "$out" ECONNREFUSED
}

#@ root user range
test_a_box_gets_a_policy_and_ports_while_it_runs() {
	local b url p
	b=$(gbox)
	# nothing may pass: refused at once, not after a while, whatever the address
	try timeout 10 "$DEN" exec "$b" -- /usr/bin/python3 -c '
import socket
for a in ("192.175.48.5", "198.18.0.1", "198.18.0.2", "198.18.40.1", "10.0.0.1", "169.254.169.254", "2620:4f:8000::5", "fd00::7"):
    try: socket.create_connection((a, 80), 2); print(a, "connected")
    except OSError as e: print(e.strerror)
    u = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(2)
    try: u.connect((a, 4000)); u.send(b"x"); u.recv(1); print(a, "answered")
    except OSError as e: print(e.strerror)'
	want_out "$(yes 'Connection refused' | head -n 16)"
	# one that is meant for the box alone, and one for IPv6
	den exec --detach "$b" -- /usr/bin/python3 -m http.server --bind 127.0.0.1 3000
	den exec --detach "$b" -- /usr/bin/python3 -m http.server --bind ::1 3001
	for p in 3000 3001; do
		url=$(den port "$b" $p)
		soon 10 curl -sSf -o page "$url" || fail "$url leads nowhere"
		grep -q Directory page
	done
	den policy set "$b" --allow a.test
	url=$(den port "$b" 3000)
	curl -sSf -o page "$url" || fail "$url leads nowhere"
}

# What the sentry's own network is: nothing but a cable to the box's gate.
#@ root
test_the_link_leads_to_the_boxs_own_gate_and_nowhere_else() {
	local b c s n
	b=$(gbox --allow a.test)
	c=$(gbox --allow a.test)
	s=$(sandbox_of "$b")
	for n in $(field "$b" init_pid) $s; do
		not [ "$(readlink "/proc/$n/ns/net")" = "$(readlink /proc/self/ns/net)" ] || fail "the host's network"
	done
	not [ "$(readlink "/proc/$s/ns/net")" = "$(readlink "/proc/$(field "$b" init_pid)/ns/net")" ] ||
		fail "the sentry is where the gate's sockets are"
	is "interfaces of the sentry" "$(sed -n 's/^ *\([a-z0-9]*\):.*/\1/p' "/proc/$s/net/dev" | sort | tr '\n' ' ')" 'eth0 lo '
	is "and at its gate" "$(sed -n 's/^ *\([a-z0-9]*\):.*/\1/p' "/proc/$(field "$b" init_pid)/net/dev" | sort | tr '\n' ' ')" 'gate0 lo '
	not grep -q gate0 /proc/net/dev || fail "it is in the host's network"
	# another box has the same address, and is not met
	den exec --detach "$c" -- /usr/bin/python3 -m http.server 3000
	try den exec "$b" -- curl -sS -m 3 http://198.18.0.2:3000/
	want_rc 7
	# raw packets with any source reach the gate's kernel alone
	try timeout 10 "$DEN" exec "$b" -- /usr/bin/python3 -c '
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def ip(src, dst, n): return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + n, 1, 0, 64, 17, 0, socket.inet_aton(src), socket.inet_aton(dst))
for src, dst in (("10.0.0.1", "127.0.0.1"), ("127.0.0.1", "198.18.0.1"), ("198.18.0.1", "192.175.48.5")):
    try: s.sendto(ip(src, dst, 12) + struct.pack("!HHHH4s", 1, 53, 12, 0, b"abcd"), (dst, 0))
    except OSError as e: pass
print("sent")'
	is "both live" "$(den exec "$b" -- echo x)$(den exec "$c" -- echo y)" xy
}

#@ root
test_programs_go_on_where_they_were_saved() {
	local b f n
	b=$(gbox)
	den exec --detach --tag t "$b" -- /usr/bin/python3 -c '
import os, time
n = 0
while True:
    n += 1
    open("/root/m", "w").write("%d\n" % n)
    os.rename("/root/m", "/root/n")
    print(n, flush=True)
    time.sleep(0.05)'
	soon 5 "$DEN" exec "$b" -- test -s /root/n
	den checkpoint --full "$b" >/dev/null
	n=$(den exec "$b" -- cat /root/n)
	f=$(den fork --full --name twin "$b" | tail -n 1)
	is "the twin's name" "$(den exec twin -- hostname)" twin
	not [ "$(den exec twin -- cat /proc/sys/kernel/random/boot_id)" = "$(den exec "$b" -- cat /proc/sys/kernel/random/boot_id)" ] ||
		fail "both are of one start"
	at_least "the twin's count" "$(den exec twin -- cat /root/n)" "$n"
	den pause --disk "$b" >/dev/null
	is state "$(state_of "$b")" paused
	not pgrep -f "runsc.*$b" >/dev/null || fail "something of it runs"
	den resume "$b"
	sleep 0.3
	at_least "its count" "$(den exec "$b" -- cat /root/n)" $((n + 2))
	try timeout 2 "$DEN" attach "$b" t
	want_out_has '^1$'
	is "the program was started once" "$(grep -c '^1$' <<<"$out")" 1
	den rm --force "$f"
}

# holds FILE: a program that keeps a connection to outside, one within the box, and a listening socket
holds() {
	cat >"$1" <<-'PY'
		import os, socket, sys, threading, time
		def say(*a): print(*a, flush=True)
		l = socket.create_server(("127.0.0.1", 4000)); c = socket.create_connection(("127.0.0.1", 4000)); s = l.accept()[0]
		w = socket.create_server(("0.0.0.0", 3000))
		def serve():
		    while True:
		        k = w.accept()[0]; k.sendall(b"served by %s\n" % socket.gethostname().encode()); k.close()
		threading.Thread(target=serve, daemon=True).start()
		def outside():
		    while True:
		        try:
		            o = socket.create_connection(("a.test", 7000)); o.sendall(b"first\n"); o.recv(6); say("outside: there")
		            say("outside: end" if not o.recv(1) else "outside: more")
		        except OSError as e: say("outside:", e.strerror)
		        time.sleep(0.3)
		threading.Thread(target=outside, daemon=True).start()
		n = 0
		while True:
		    n += 1; c.sendall(b"%d " % n); assert s.recv(20) == b"%d " % n
		    say("inside:", n); time.sleep(0.1)
	PY
}

#@ root net
test_a_box_with_a_network_is_saved_with_its_programs() {
	local b url
	need_runsc
	net_up
	b=$(DEN_WALL=gvisor allowed a.test:7000)
	holds "$KIT/share/holds.py"
	den exec --detach --tag t "$b" -- /usr/bin/python3 /share/holds.py
	soon 10 sh -c 'timeout 1 "$DEN" attach "$1" t | grep -q "outside: there"' sh "$b"
	url=$(den port "$b" 3000)
	# the connection to outside is cut, is told, and can be made again; what is within goes on
	try den checkpoint --full --json "$b"
	want_rc 0
	want_out_has '"lost":\["1 connection to outside the box: closed"\]'
	soon 10 sh -c 'timeout 1 "$DEN" attach "$1" t | grep -A 30 "connection abort" | grep -q "outside: there"' sh "$b"
	is port "$(curl -sS --http0.9 "$url")" "served by $b"
	den fork --full --name twin "$b" >/dev/null
	soon 10 sh -c 'timeout 1 "$DEN" attach twin t | tail -n 20 | grep -q "outside: there"'
	is "the port of the first" "$(curl -sS --http0.9 "$url")" "served by $b"
	is "the twin has its own" "$(curl -sS --http0.9 "$(den port twin 3000)")" 'served by twin'
	den pause --disk "$b" >/dev/null
	den resume "$b"
	soon 10 sh -c 'timeout 1 "$DEN" attach "$1" t | tail -n 20 | grep -q "outside: there"' sh "$b"
	is "port after resuming" "$(curl -sS --http0.9 "$(den port "$b" 3000)")" "served by $b"
	# what is not allowed stays so
	poke "$b" tcp "$PUB" 80
	is "an address" "$out" ECONNREFUSED
	poke twin tcp "$PUB2" 7000
	is "an address" "$out" ECONNREFUSED
	den policy set "$b" --policy ./p.json
	inside "$b" curl -sS -m 3 http://a.test:7000/
	want_rc 6
	den rm --force twin
}

#@ root net
test_half_of_a_connection_can_be_closed() {
	local b
	need_runsc
	net_up
	b=$(DEN_WALL=gvisor allowed a.test:7000)
	inside "$b" /usr/bin/python3 -c '
import socket
s = socket.create_connection(("a.test", 7000)); s.sendall(b"\0\0\0\10"); s.shutdown(socket.SHUT_WR)
print(s.recv(10), s.recv(10))'
	want_out "b'\\x00\\x00\\x00\\x08' b''"
}

# The keeper dies when it has asked init to let go of everything, and before init has heard of it: the next one is just
# there when that happens.
#@ root
test_a_keeper_that_dies_as_it_begins_to_save_leaves_a_box_that_goes_on() {
	local b p s n
	b=$(gbox)
	den exec "$b" -- true
	p=$(field "$b" init_pid)
	s=$(sandbox_of "$b")
	n=$(field "$b" keeper_pid)
	kill -STOP "$s"
	"$DEN" checkpoint --full "$b" >/dev/null 2>&1 &
	sleep 0.5
	kill -KILL "$n"
	"$DEN" exec "$b" -- echo x >said 2>&1 &
	n=$!
	sleep 0.5
	kill -CONT "$s"
	wait "$n" || fail "it is not reached: $(cat said)"
	is "what it says" "$(cat said)" x
	is "the same box" "$(field "$b" init_pid)" "$p"
	den checkpoint --full "$b" >/dev/null
}

# What hangs in the sentry is not waited for without end, and is told.
#@ root
test_a_sentry_that_hangs_is_told_and_does_not_hold_the_keeper() {
	local b s
	b=$(gbox)
	den exec "$b" -- true
	s=$(sandbox_of "$b")
	kill -STOP "$s"
	try timeout 100 "$DEN" checkpoint --full "$b"
	kill -CONT "$s"
	[ "$rc" != 0 ] && [ "$rc" != 124 ] || fail "$(told)"
	want_err_has 'does not answer|no answer|in time'
	soon 20 "$DEN" inspect "$b" >/dev/null
	# until it has come back it is refused, not lost
	soon 20 sh -c '"$DEN" exec "$1" -- true 2>said || { grep -q "try again" said || cat said >>other; false; }' sh "$b"
	not [ -s other ] || fail "it is told: $(cat other)"
	is "it goes on" "$(den exec "$b" -- echo x)" x
}
