# Much traffic, slow, half and broken connections, and deaths in the middle of it. The bigger ones of these
# run with `make soak` (LOAD_SCALE). See gate/load.py for who speaks.
source "$TESTS/gate/kit.sh"

SCALE=${LOAD_SCALE:-1}
LOAD=/usr/bin/python3\ /gate/load.py

# load_up: servers on the host's loopback; $port, and $web for HTTP
load_up() {
	/usr/bin/python3 "$TESTS/gate/load.py" serve "$TMP" &
	soon 10 test -e "$TMP/port"
	port=$(cat "$TMP/port")
	web=$((port + 1))
}

load_box() {
	den create --allow "host:$port-$web" --mount "$TESTS/gate:/gate:ro" "$@"
}

# load BOX WHAT PORT ...: its last line must be the wanted one
load() {
	try timeout $((SCALE > 1 ? 600 : 60)) "$DEN" exec "$1" -- $LOAD "$2" host.den "${@:3}"
	want_rc 0
}

# holds BOX N WHAT PORT: N connections that stay; returns when they are there. $held ends them
holds() {
	rm -f "$TMP/hold"
	den exec "$1" -- $LOAD hold host.den "$4" "$2" "$3" >"$TMP/hold" 2>"$TMP/hold.err" &
	held=$!
	soon 30 test -s "$TMP/hold"
	is "held connections" "$(cat "$TMP/hold")" "$2"
}

fds() {
	find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l
}

fds_at_most() {
	[ "$(fds "$1")" -le "$2" ]
}

# Clock ticks (10 ms) that a process has used
ticks() {
	awk '{ print $14 + $15 }' "/proc/$1/stat"
}

# rests PID: uses no more than a tenth of a processor
rests() {
	local before
	before=$(ticks "$1")
	sleep 0.5
	[ $(($(ticks "$1") - before)) -le 5 ]
}

works() {
	[ "$(timeout 10 "$DEN" exec "$1" -- $LOAD down host.den "$port" 1000 2>/dev/null)" = 1 ]
}

# ---- bytes ---------------------------------------------------------------------------------------

test_bytes_arrive_as_they_were_sent() {
	local b
	load_up
	b=$(load_box)
	load "$b" down "$port" $((20000003 * SCALE))
	want_out 1
	load "$b" up "$port" $((20000003 * SCALE)) # ends its side, and is answered then
	want_out 1
	load "$b" both "$port" 300007 20
	want_out 40
	load "$b" web "$web" 1000003 4 # parsed: several requests on each
	want_out 4
	load "$b" web "$web" 17 30
	want_out 30
}

#@ root user timeout=120
test_a_thousand_at_once() {
	local b g before
	load_up
	b=$(load_box)
	works "$b"
	g=$(gate_pid "$b")
	before=$(fds "$g")
	load "$b" both "$port" 20000 500
	want_out 1000
	soon 5 fds_at_most "$g" $((before + 32)) # pipes are kept for the next
}

test_reset_is_passed_on_with_what_was_said_before() {
	local b
	load_up
	b=$(load_box)
	load "$b" answers "$port" 5
	want_out '0 reset'
	load "$b" answers "$port" 6
	want_out '65536 reset'
}

test_nc_that_closes_its_side_gets_its_answer() {
	local b
	command -v nc.openbsd >/dev/null || skip 'nc.openbsd is not here'
	load_up
	b=$(load_box)
	inside "$b" sh -c "printf '\\002hello' | nc.openbsd -N host.den $port"
	want_out "$(printf hello | sha256sum | cut -d' ' -f1)"
}

# ---- slow, half, many ----------------------------------------------------------------------------

#@ root user timeout=120 waits
test_who_does_not_read_costs_little_and_hurts_nobody() {
	local b other g what
	load_up
	b=$(load_box)
	other=$(load_box)
	works "$b"
	works "$other"
	g=$(gate_pid "$b")
	for what in "300 web $web" "200 3 $port"; do
		holds "$b" $what
		soon 10 rests "$g" || fail "the gate is busy with $what"
		# 300 times what is held for one (256 KiB) and exchanged (64), the gate itself, and a fifth for the allocator
		at_most 'memory of the gate (KiB)' "$(rss_kb "$g")" 120000
		works "$other"
		works "$b"
		kill "$held"
		wait "$held" 2>/dev/null || true
	done
	den exec "$b" -- pkill -f load.py || true
	soon 5 fds_at_most "$g" 100 || fail "$(fds "$g") descriptors are left"
	works "$b"
}

#@ root user timeout=120
test_half_open_and_silent_connections_cost_little() {
	local b g before n=1000
	[ "$SCALE" = 1 ] || n=9000 # the limit on descriptors is 20,000 on some machines, and each needs two
	load_up
	b=$(load_box --net-conns 10000)
	works "$b"
	g=$(gate_pid "$b")
	before=$(rss_kb "$g")
	holds "$b" $n none "$port"
	at_most 'memory for a silent connection (KiB)' $((($(rss_kb "$g") - before) / n)) 4
	holds "$b" 500 half "$port"
	rests "$g" || fail 'the gate is busy with those that say nothing'
	works "$b"
}

test_limit_on_connections_is_kept_and_told() {
	local b
	load_up
	b=$(load_box --net-conns 50)
	den exec "$b" -- $LOAD hold host.den "$port" 80 4 3600 >"$TMP/hold" 2>&1 &
	want_denial "$b" 'too many connections at once'
	works "$b" && fail 'one more was let through'
	den exec "$b" -- pkill -f load.py || true
	den policy set "$b" --net-conns 100 >/dev/null
	soon 5 works "$b"
}

test_rate_limit_holds_and_does_not_spin() {
	local b g before took
	load_up
	b=$(load_box --net-rate 1M)
	works "$b"
	g=$(gate_pid "$b")
	before=$(ticks "$g")
	took=$(now_ms)
	load "$b" both "$port" 750000 2
	want_out 4
	took=$(($(now_ms) - took))
	at_least 'milliseconds for 3 MB at 1 MiB a second' "$took" 2300
	at_most 'processor time (10 ms)' $(($(ticks "$g") - before)) 40
}

#@ root user timeout=120
test_ends_in_every_way_leave_nothing() {
	local b g before
	load_up
	b=$(load_box)
	works "$b"
	g=$(gate_pid "$b")
	load "$b" churn "$port" 1
	before=$(rss_kb "$g")
	load "$b" churn "$port" $((2 * SCALE))
	at_least 'connections' "$out" 100
	is 'the gate' "$(gate_pid "$b")" "$g"
	at_most 'growth of the gate (KiB)' $(($(rss_kb "$g") - before)) 8000
	rests "$g"
	works "$b"
}

# ---- deaths --------------------------------------------------------------------------------------

other_gate() {
	local now
	now=$(gate_pid "$1") && [ "$now" != "$2" ]
}

#@ root user timeout=120
test_gate_killed_in_traffic_is_closed_then_back() {
	local b g i
	load_up
	b=$(load_box)
	for ((i = 0; i < 2 * SCALE; i++)); do
		soon 10 works "$b"
		g=$(gate_pid "$b")
		timeout 20 "$DEN" exec "$b" -- $LOAD churn host.den "$port" 3 >/dev/null 2>&1 &
		sleep "0.$((RANDOM % 5))"
		kill -9 "$g"
		soon 10 other_gate "$b" "$g" || fail 'nobody started it again'
	done
	soon 10 works "$b"
	want_journal "$b" 'started again'
}

keeper_of_another_life() {
	local now
	now=$(field "$1" keeper_pid)
	[ -n "$now" ] && [ "$now" != "$2" ] && alive "$now"
}

# Whoever dies in between: when the new policy was acknowledged, nothing of the old one is left.
#@ root user timeout=120
test_keeper_killed_while_the_policy_is_set_never_leaves_it_open() {
	local b k i
	load_up
	b=$(load_box)
	for ((i = 0; i < 3 * SCALE; i++)); do
		den policy set "$b" --allow "host:$port-$web" >/dev/null
		soon 10 works "$b"
		k=$(field "$b" keeper_pid)
		den policy set "$b" --net none >/dev/null 2>&1 &
		sleep "0.0$((RANDOM % 6))"
		kill -9 "$k" 2>/dev/null || true
		wait $! || true
		den policy set "$b" --net none >/dev/null
		not works "$b" || fail 'the box still gets out'
	done
}

# A gate that an earlier keeper started is nobody's child.
test_policy_set_by_the_next_keeper_ends_the_gate_it_found() {
	local b k g
	load_up
	b=$(load_box)
	works "$b"
	k=$(field "$b" keeper_pid)
	g=$(gate_pid "$b")
	kill -9 "$k"
	soon 5 dead "$k"
	works "$b" # goes on under the policy that it has
	den policy set "$b" --net none >/dev/null
	soon 1 dead "$g" || fail 'the gate of the old policy is still there'
	not works "$b"
	den policy set "$b" --allow "host:$port" >/dev/null
	works "$b"
}

test_nothing_is_left_of_a_box_with_traffic() {
	local b g
	load_up
	b=$(load_box)
	works "$b"
	g=$(gate_pid "$b")
	holds "$b" 100 3 "$port"
	den rm --force "$b"
	soon 5 dead "$g" || fail 'the gate outlives its box'
	not grep -q "$b" /proc/net/unix
}

# ---- what it has ---------------------------------------------------------------------------------

status_of() {
	awk -v k="$2:" '$1 == k { print $2 }' "/proc/$1/status"
}

#@ root user range
test_gate_has_no_rights_and_no_files() {
	local b g left
	load_up
	b=$(load_box)
	works "$b"
	g=$(gate_pid "$b")
	is CapEff "$(status_of "$g" CapEff)" 0000000000000000
	is CapPrm "$(status_of "$g" CapPrm)" 0000000000000000
	is NoNewPrivs "$(status_of "$g" NoNewPrivs)" 1
	is Seccomp "$(status_of "$g" Seccomp)" 2
	is Threads "$(status_of "$g" Threads)" 1
	if [ "$VARIANT" = root ]; then
		is Uid "$(status_of "$g" Uid)" 65534
		is Gid "$(status_of "$g" Gid)" 65534
		is Groups "$(status_of "$g" Groups)" ''
		is 'what it has of files' "$(find "/proc/$g/root/" -mindepth 1 2>/dev/null)" ''
		# sockets, pipes, the loop, the process of the box: no file, and nothing of the state directory
		left=$(readlink "/proc/$g/fd/"* | grep -Ev '^(socket|pipe|anon_inode):|^/dev/null$|ca-certificates' || true)
		is 'what it has open' "$left" ''
	fi
}
