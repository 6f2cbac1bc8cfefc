# Too much of anything: contained, told truly inside, and named when it ends a program.

free_kb() {
	awk '/^MemAvailable:/ { print $2 }' /proc/meminfo
}

#@ root user range timeout=90 alone
test_a_fork_bomb_is_contained() {
	local b before t
	b=$(box --pids 200) || fail "no box with --pids"
	try timeout 30 "$DEN" exec "$b" -- /attacks/attack-bomb fork
	want_rc 3
	want_out_has 'fork failed after [0-9]+'
	at_most "processes" "$(grep -o 'after [0-9]*' <<<"$out" | cut -d' ' -f2)" 200
	at_least "processes" "$(grep -o 'after [0-9]*' <<<"$out" | cut -d' ' -f2)" 100
	# One that never gives up: the host goes on, and the box can be ended.
	before=$(ls -d /proc/[0-9]* | wc -l)
	try den exec --detach "$b" -- /attacks/attack-bomb threads
	sleep 2
	at_most "processes of the host" "$(ls -d /proc/[0-9]* | wc -l)" $((before + 400))
	t=$(now_ms)
	timeout 30 "$DEN" rm --force "$b"
	at_most milliseconds $(($(now_ms) - t)) 15000
}

#@ root user alone
test_the_number_of_processes_is_limited_without_asking() {
	local b
	b=$(box)
	is pids "$(field "$b" pids)" 4096
	try timeout 50 "$DEN" exec "$b" -- /attacks/attack-bomb fork
	want_rc 3
	at_most processes "$(grep -o 'after [0-9]*' <<<"$out" | cut -d' ' -f2)" 4096
	den rm --force "$b"
}

#@ root
test_a_memory_bomb_is_killed_with_the_reason() {
	local b
	b=$(box --memory 64M)
	try timeout 40 "$DEN" exec "$b" -- /attacks/attack-bomb memory 500000000
	want_rc 137
	want_err_has memory
	is "the box lives" "$(den exec "$b" -- echo x)" x
	try timeout 40 "$DEN" run --memory 64M --mount "$ATTACKS:/attacks:ro" -- /attacks/attack-bomb memory 500000000
	want_rc 137
	want_err_has memory
	# What fits, fits.
	try timeout 40 "$DEN" exec "$b" -- /attacks/attack-bomb memory 30000000
	want_rc 0
	den stats --once --json "$b" | is_json
}

#@ root
test_memory_of_tmpfs_counts() {
	local b d
	b=$(box --memory 64M)
	for d in /dev/shm /tmp /run; do
		try timeout 40 "$DEN" exec "$b" -- sh -c "/attacks/attack-bomb file $d/big 300000000; s=\$?; rm -f $d/big; exit \$s"
		if [ "$rc" = 0 ]; then
			# Only a directory on disk can hold more than the memory allows.
			try den exec "$b" -- stat -f -c %T $d
			[ "$out" != tmpfs ] || fail "$d took 300 MB with a limit of 64 MB"
		fi
	done
	is "the box lives" "$(den exec "$b" -- echo x)" x
}

#@ root user alone
test_shared_memory_is_bounded_even_without_a_limit() {
	# /dev/shm of a box must not be as large as the host's memory.
	local kb total
	kb=$(den run -- df -k --output=size /dev/shm | tail -1)
	total=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)
	at_most "kilobytes of /dev/shm" "$kb" $((total * 3 / 4))
}

cpu_ms_of() {
	den stats --once --json "$1" | /usr/bin/python3 -c '
import json, sys
d = json.load(sys.stdin)
print(int(d["cpu_usec"]) // 1000)'
}

#@ root alone
test_processor_time_is_limited_to_the_share() {
	local b a c
	b=$(box --cpus 0.5)
	den exec --detach "$b" -- /attacks/attack-bomb spin 4
	sleep 0.5
	a=$(cpu_ms_of "$b")
	sleep 4
	c=$(cpu_ms_of "$b")
	at_most "milliseconds of processor in 4 s" $((c - a)) 2700
	at_least "milliseconds of processor in 4 s" $((c - a)) 1200
}

#@ root
test_limits_are_told_truly_inside() {
	local b
	b=$(box --cpus 1 --memory 256M --pids 123)
	is nproc "$(den exec "$b" -- nproc)" 1
	is MemTotal "$(den exec "$b" -- awk '/^MemTotal:/ { print $2 }' /proc/meminfo)" 262144
	is "free" "$(den exec "$b" -- free -m | awk '/^Mem:/ { print $2 }')" 256
	at_most "free memory" "$(den exec "$b" -- awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)" 262144
	at_least "free memory" "$(den exec "$b" -- awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)" 100000
	is "swap" "$(den exec "$b" -- awk '/^SwapTotal:/ { print $2 }' /proc/meminfo)" 0
	is "python's count" "$(den exec "$b" -- /usr/bin/python3 -c 'import os; print(len(os.sched_getaffinity(0)))')" 1
}

#@ root user
test_uptime_is_the_boxes_own() {
	local b version
	version=$(uname -r | awk -F. '{ print $1 * 1000 + $2 }')
	[ "$version" -ge 6003 ] || skip "Linux before 6.3: execve() does not enter a time namespace"
	b=$(box)
	at_most "seconds of uptime" "$(den exec "$b" -- cut -d. -f1 /proc/uptime)" 30
}

#@ root
test_fractions_of_processors_round_up() {
	is "nproc of 0.5" "$(den run --cpus 0.5 -- nproc)" 1
	[ "$(nproc)" -ge 2 ] || skip "one processor only"
	is "nproc of 1.5" "$(den run --cpus 1.5 -- nproc)" 2
}

#@ user range
test_limits_that_cannot_be_kept_are_refused() {
	local o
	if den doctor | grep -i cgroup | grep -qi '\bok\b'; then
		skip "this user has a usable cgroup"
	fi
	for o in '--memory 64M' '--cpus 1'; do
		try den create $o
		want_rc 8
		want_err_has 'cgroup'
		try den run $o -- true
		want_rc 125
	done
	no_boxes || fail "a refused create left $(boxes)"
}

#@ root user range
test_a_timeout_ends_the_whole_tree_and_says_so() {
	local b t
	b=$(box)
	t=$(now_ms)
	try timeout 30 "$DEN" exec --timeout 1s "$b" -- sleep 100
	[ "$rc" = 143 ] || [ "$rc" = 124 ] || fail "$(told)"
	want_err_has timeout
	t=$(($(now_ms) - t))
	at_least milliseconds $t 900
	at_most milliseconds $t 4000
	# What ignores TERM is killed after the grace, daemons too.
	t=$(now_ms)
	try timeout 30 "$DEN" exec --timeout 1s --grace 500ms "$b" -- sh -c '/attacks/attack-bomb daemon /tmp/beat; exec /attacks/attack-bomb stubborn'
	is status "$rc" 137
	want_err_has timeout
	at_most milliseconds $(($(now_ms) - t)) 6000
	soon 3 not den exec "$b" -- pgrep -f attack-bomb >/dev/null || fail "something survived: $(den ps "$b")"
	# A stopped process is ended, too.
	try timeout 30 "$DEN" exec --timeout 1s --grace 500ms "$b" -- /attacks/attack-bomb stop
	[ "$rc" = 143 ] || [ "$rc" = 137 ] || fail "$(told)"
	want_err_has timeout
	# An end in time is not disturbed.
	try den exec --timeout 20s "$b" -- sh -c 'exit 6'
	want_rc 6
	is stderr "$err" ""
	try timeout 30 "$DEN" run --timeout 1s -- sleep 100
	want_err_has timeout
	soon 5 sh -c '[ "$("$DEN" ls --quiet)" = "$0" ]' "$b"
}

#@ root user
test_processor_time_of_the_whole_tree_is_limited() {
	local b t
	b=$(box)
	t=$(now_ms)
	try timeout 40 "$DEN" exec --cpu-time 1s --grace 200ms "$b" -- /attacks/attack-bomb spin 3
	# Without a cgroup the kernel's own limit of one process may come first: SIGXCPU.
	[ "$rc" = 143 ] || [ "$rc" = 137 ] || [ "$rc" = 152 ] || fail "$(told)"
	want_err_has cpu
	at_most milliseconds $(($(now_ms) - t)) 15000
	soon 3 not den exec "$b" -- pgrep -f attack-bomb >/dev/null || fail "a child spins on"
	# Children that come and go count as well.
	try timeout 40 "$DEN" exec --cpu-time 1s --grace 200ms "$b" -- sh -c 'while :; do timeout 0.2 sh -c "while :; do :; done"; done'
	want_err_has cpu
	# Sleeping costs nothing.
	try den exec --cpu-time 1s "$b" -- sleep 2
	want_rc 0
}

#@ root user
test_too_much_output_ends_a_program() {
	local b
	b=$(box)
	try timeout 30 "$DEN" exec --max-output 1M "$b" -- yes
	want_err_has output
	[ "$rc" = 137 ] || [ "$rc" = 143 ] || fail "status $rc"
	at_most "bytes" "$(stat -c %s "$TMP/.out")" 1200000
	at_least "bytes" "$(stat -c %s "$TMP/.out")" 1000000
	try den exec --max-output 1M "$b" -- head -c 1000000 /dev/zero
	want_rc 0
}

#@ root user range
test_open_files_are_limited() {
	local b n
	b=$(box --nofile 100)
	try den exec "$b" -- /attacks/attack-bomb files
	want_rc 0
	want_out 100
	is ulimit "$(den exec "$b" -- sh -c 'ulimit -n; ulimit -Hn' | tr '\n' ' ')" "100 100 "
}

#@ root timeout=90
test_the_disk_is_limited_and_df_tells() {
	local b n kb
	b=$(box --disk 64M)
	is 'others than root may go through /' "$(den exec -u 65534 -w / "$b" -- stat -c %a /)" 755
	kb=$(den exec "$b" -- df -k --output=size / | tail -1)
	at_most "kilobytes that df tells" "$kb" 70000
	at_least "kilobytes that df tells" "$kb" 50000
	try timeout 50 "$DEN" exec "$b" -- /attacks/attack-bomb file /root/big 200000000
	want_rc 3
	want_out_has 'No space|quota'
	n=$(grep -o '^[0-9]*' <<<"$out")
	at_most bytes "$n" 70000000
	at_least bytes "$n" 45000000
	# Other directories are no way around it.
	local d
	for d in /var/tmp /home /opt /usr /tmp; do
		try timeout 50 "$DEN" exec "$b" -- /attacks/attack-bomb file $d/big2 200000000
		[ "$rc" = 3 ] || fail "$d took 200 MB"
	done
	# A copy says why it failed, and the box is still of use.
	head -c 100000000 /dev/urandom >in # zeros would be holes
	try den cp in "$b:/root/in"
	want_rc 6
	want_err_has 'space|disk'
	try sh -c 'cat in | "$DEN" fs write --atomic "$0" /root/in2' "$b"
	want_rc 6
	den exec "$b" -- rm -rf /root/big /root/in /tmp/big2 /var/tmp/big2 /home/big2 /opt/big2 /usr/big2
	echo fits | den fs write "$b" /root/small
	is "afterwards" "$(den fs cat "$b" /root/small)" fits
	den stop "$b"
	den start "$b"
	is "after a restart" "$(den fs cat "$b" /root/small)" fits
	at_most "kilobytes after a restart" "$(den exec "$b" -- df -k --output=size / | tail -1)" 70000
}

#@ root
test_files_without_end_do_not_fill_the_host() {
	local b n
	b=$(box --disk 32M)
	# Inodes and sparse files count as well as bytes.
	try timeout 50 "$DEN" exec "$b" -- sh -c 'mkdir /root/d && cd /root/d && i=0; while [ $i -lt 200000 ] && true >f$i; do i=$((i+1)); done 2>/dev/null; echo $i'
	n=$(tail -1 <<<"$out")
	at_most "empty files in 32 MB" "$n" 199999
	at_least "empty files in 32 MB" "$n" 500
}

#@ user range
test_a_disk_limit_is_kept_or_refused() {
	local b
	try den create --disk 64M --mount "$ATTACKS:/attacks:ro"
	if [ "$rc" != 0 ]; then
		want_rc 8
		want_err_has disk
		no_boxes
		return
	fi
	b=$out
	try timeout 50 "$DEN" exec "$b" -- /attacks/attack-bomb file /root/big 200000000
	want_rc 3
}

#@ root user
test_max_runtime_stops_the_box_with_the_reason() {
	local b
	b=$(box --max-runtime 2s)
	den exec --detach "$b" -- /attacks/attack-bomb stubborn
	is state "$(state_of "$b")" running
	soon 12 is_state "$b" stopped || fail "still $(state_of "$b")"
	grep -qi 'runtime' <<<"$(field "$b" reason)" || fail "reason: $(field "$b" reason)"
}

#@ root user
test_many_boxes_do_not_slow_each_other_to_a_halt() {
	local i t
	t=$(now_ms)
	for i in $(seq 20); do
		den run -- true
	done
	at_most "milliseconds for 20 runs" $(($(now_ms) - t)) $((15000 * ${DEN_TEST_SLOW:-1}))
}

has_pids() {
	[ "$(den stats --once --json "$1" | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["pids"])')" -ge "$2" ]
}

#@ root
test_stats_tell_what_was_used() {
	local b
	b=$(box --memory 128M)
	den exec "$b" -- sh -c 'head -c 5000000 /dev/zero >/root/f; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'
	at_least "milliseconds of processor" "$(cpu_ms_of "$b")" 20
	try den stats --once --json "$b"
	want_out_has '"memory_limit": *134217728'
	want_out_has '"pids": *[1-9]'
	want_out_has "\"pids_max\": *$([ "${DEN_WALL:-}" = gvisor ] && echo 250 || echo 4096)"
	den exec --detach "$b" -- sh -c 'sleep 100 & sleep 100 & sleep 100'
	soon 5 has_pids "$b" 4
	try den stats --once "$b"
	want_rc 0
}
