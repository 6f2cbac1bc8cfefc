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

#@ root
test_a_box_without_a_network_gets_one_at_its_next_start() {
	local b url
	b=$(gbox)
	try den port "$b" 3000
	want_rc 8
	want_err_has 'next start'
	try den policy set "$b" --allow a.test
	want_rc 8
	den stop "$b"
	den start "$b"
	den exec --detach "$b" -- /usr/bin/python3 -m http.server 3000
	url=$(den port "$b" 3000)
	soon 10 curl -sSf -o page "$url" || fail "$url leads nowhere"
	grep -q Directory page
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

#@ root
test_a_box_with_a_network_is_not_saved_and_says_why() {
	local b
	b=$(gbox --allow a.test)
	try den checkpoint --full "$b"
	want_rc 8
	want_err_has 'network'
	is "it goes on" "$(den exec "$b" -- echo x)" x
}
