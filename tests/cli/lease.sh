# How long a box stays: deadlines and idle times, and what survives what.

# Behind gVisor it takes longer until a box can be used: short lives are so much longer there.
case ${DEN_WALL:-} in gvisor) more=4 ;; *) more=0 ;; esac

gone() {
	not "$DEN" inspect "$1" >/dev/null 2>&1
}

keeper_of() {
	field "$1" keeper_pid
}

# Ends the keeper of a box as an accident would.
kill_keeper() {
	local pid
	pid=$(keeper_of "$1")
	kill -9 "$pid"
	soon 5 dead "$pid"
}

# Pausing needs a cgroup, which an ordinary user may not have.
can_pause() {
	local b
	b=$(box)
	if den pause "$b" 2>/dev/null; then
		den rm --force "$b"
		return 0
	fi
	den rm --force "$b"
	return 1
}

#@ root user range
test_a_box_is_deleted_when_its_time_is_up() {
	local b
	b=$(box --ttl 1s --name short)
	is state "$(state_of "$b")" running
	soon 5 gone "$b" || fail "still there after its time"
	no_boxes || fail "listed: $(boxes)"
	den create --name short >/dev/null || fail "its name was not given back"
}

test_a_box_is_stopped_when_its_time_is_up() {
	local b
	b=$(box --ttl $((1 + more))s --on-expire stop)
	den exec "$b" -- sh -c 'echo kept >/kept'
	soon $((8 + more)) is_state "$b" stopped
	is reason "$(field "$b" reason)" "its time was up"
	# it stays so until it is given more time
	try den start "$b"
	[ "$rc" != 0 ] || fail "started with no time left"
	want_err_has "time is up"
	den lease --ttl 1h "$b"
	den start "$b"
	is "the file" "$(den exec "$b" cat /kept)" kept
}

test_a_box_is_paused_when_its_time_is_up() {
	local b
	if ! can_pause; then
		try den create --ttl 1h --on-expire pause
		[ "$rc" != 0 ] || fail "promised to pause what cannot be paused"
		want_err_has "stop or delete"
		no_boxes || fail "the refused box stayed"
		return
	fi
	b=$(box --ttl 1s --on-expire pause)
	den exec --detach "$b" -- sleep 1000 >/dev/null
	soon 5 is_state "$b" paused
	is reason "$(field "$b" reason)" "its time was up"
	# the deadline of a paused box does not fire, nor does it go on with none
	sleep 1.2
	is state "$(state_of "$b")" paused
	try den resume "$b"
	[ "$rc" != 0 ] || fail "resumed with no time left"
	want_err_has "time is up"
	den lease --ttl 1h "$b"
	den resume "$b"
	is state "$(state_of "$b")" running
	is reason "$(field "$b" reason)" ""
	den ps "$b" | grep -q 'sleep 1000' || fail "its program is gone"
}

test_a_deadline_can_be_moved_and_taken_away() {
	local b before
	b=$(box --ttl 1s)
	den lease --ttl 1h "$b"
	sleep 1.5
	is state "$(state_of "$b")" running
	before=$(field "$b" expires)
	den lease --ttl 1m --extend "$b"
	is "expires after a shorter one" "$(field "$b" expires)" "$before"
	den lease --ttl 2h --extend "$b"
	[ "$(field "$b" expires)" \> "$before" ] || fail "not extended"
	den lease --ttl never "$b"
	is expires "$(field "$b" expires)" ""
	den lease --ttl 1h --extend "$b" # never is longer than any
	is expires "$(field "$b" expires)" ""
	den lease --ttl 1s "$b"
	soon 5 gone "$b" || fail "a deadline that was given later did not end it"
}

test_leases_that_make_no_sense_are_refused() {
	local b
	try den create --ttl 1h --on-expire explode
	want_rc 2
	want_err_has "delete, pause, pause-disk or stop"
	try den create --ttl soon
	want_rc 2
	b=$(box)
	try den lease --extend "$b"
	[ "$rc" != 0 ] || fail "--extend alone was taken"
	want_err_has ttl
	try den lease no-such-box
	[ "$rc" != 0 ] || fail "leased a box that is not there"
	is "listed" "$(den lease "$b")" "no end"
	den lease --json --ttl 1h "$b" | is_json
	den ls --json | is_json
}

#@ root user range timeout=90
test_a_deadline_survives_the_death_of_the_keeper() {
	local b c
	b=$(box --ttl $((1 + more))s --name early)
	c=$(box --ttl $((3 + 3 * more))s --name late)
	kill_keeper "$b"
	kill_keeper "$c"
	sleep $((1 + more)).2
	# nobody was there to end it; whoever comes next does, before anything else
	try den exec "$b" -- true
	[ "$rc" != 0 ] || fail "ran in a box whose time was up"
	want_err_has "time was up|no box"
	no_boxes_but "$c"
	# one whose time is not up goes on counting where it was
	den exec "$c" -- true
	soon $((6 + 3 * more)) gone "$c" || fail "the deadline was forgotten with the keeper"
	no_boxes || fail "left: $(boxes)"
}

no_boxes_but() {
	is "list of boxes" "$(boxes)" "$1"
}

test_gc_ends_what_no_keeper_was_there_to_end() {
	local b
	b=$(box --ttl $((1 + more))s)
	kill_keeper "$b"
	sleep $((1 + more)).2
	den gc >/dev/null
	no_boxes || fail "still there: $(boxes)"
}

test_a_lease_survives_a_restart_of_everything() {
	local b init
	b=$(box --ttl 1h --idle 30m --on-idle stop --label job=7)
	init=$(field "$b" init_pid)
	kill_keeper "$b"
	kill -9 "$init"
	soon 5 dead "$init"
	is state "$(state_of "$b")" stopped
	den start "$b"
	[ -n "$(field "$b" expires)" ] || fail "the deadline is gone"
	is idle "$(field "$b" idle_ms)" 1800000
	is on_idle "$(field "$b" on_idle)" stop
	is labels "$(field "$b" labels)" "['job=7']"
}

#@ root user timeout=90
test_an_idle_box_is_stopped_and_a_used_one_is_not() {
	local b slow=${DEN_TEST_SLOW:-1}
	b=$(box --idle $((1500 * slow))ms --on-idle stop)
	# a program that is followed is use, though it does nothing
	den exec "$b" -- sleep $((3 * slow))
	is state "$(state_of "$b")" running
	# so is asking for something, again and again
	for _ in $(seq $((6 * slow))); do
		sleep 0.5
		den exec "$b" -- true
	done
	is state "$(state_of "$b")" running
	# to look at it is not, or whoever watches it would keep it alive
	soon 8 is_state "$b" stopped || fail "never idle"
	is reason "$(field "$b" reason)" "it was idle"
	[ -n "$(field "$b" active)" ] || fail "not told when it was last used"
	den start "$b"
	soon 8 is_state "$b" stopped || fail "not idle a second time"
}

#@ root timeout=90
test_a_box_that_computes_is_not_idle() {
	local b
	b=$(box --idle 1s --on-idle stop)
	den exec --detach --tag busy "$b" -- sh -c 'while :; do :; done' >/dev/null
	sleep 3
	is state "$(state_of "$b")" running
	den kill "$b" busy
	soon 8 is_state "$b" stopped || fail "never idle"
}

#@ root timeout=90
test_an_idle_box_is_paused_by_default_and_goes_on() {
	local b
	b=$(box --idle 1s)
	den exec --detach "$b" -- sleep 1000 >/dev/null
	soon 6 is_state "$b" paused || fail "never idle"
	den resume "$b"
	den ps "$b" | grep -q 'sleep 1000' || fail "its program is gone"
}

test_labels_are_kept_replaced_and_inherited() {
	local b f
	b=$(box --label job=7 --label 'text=a b=c')
	is labels "$(field "$b" labels)" "['job=7', 'text=a b=c']"
	f=$(den fork "$b")
	is "labels of a fork" "$(field "$f" labels)" "['job=7', 'text=a b=c']"
	is "deadline of a fork" "$(field "$f" expires)" ""
	f=$(den fork --label own=1 --ttl 1h "$b")
	is "own labels of a fork" "$(field "$f" labels)" "['own=1']"
	[ -n "$(field "$f" expires)" ] || fail "no deadline of its own"
	den label "$b" other=1
	is labels "$(field "$b" labels)" "['other=1']"
	kill_keeper "$b"
	is "printed" "$(den label "$b")" "label        other=1"
	den label --clear "$b"
	is labels "$(field "$b" labels)" "[]"
	try den label "$b" nonsense
	[ "$rc" != 0 ] || fail "a label without a value was taken"
	want_err_has "KEY=VALUE"
	try den create --label a=1 --label a=2
	[ "$rc" != 0 ] || fail "a label twice was taken"
	want_err_has twice
}
