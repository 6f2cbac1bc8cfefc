# kill -9 at any moment, everything at once, disks that are full: nothing acknowledged is lost, nothing
# stays behind that nobody owns.

#@ root user range
test_a_killed_keeper_does_not_end_a_stream() {
	local b p
	b=$(box)
	"$DEN" exec "$b" -- sh -c 'for i in $(seq 30); do echo line $i; sleep 0.1; done; exit 7' >o 2>e &
	p=$!
	soon 10 grep -q 'line 5$' o
	kill -KILL "$(field "$b" keeper_pid)"
	rc=0
	wait $p || rc=$?
	is "status (stderr: $(cat e))" $rc 7
	seq -f 'line %.0f' 30 >want
	cmp want o
}

running() {
	den ps --json "$1" | /usr/bin/python3 -c '
import json, sys
v = json.load(sys.stdin)
print(sum(e["running"] for e in v["execs"]) + len(v["processes"]) - 1)'
}

# early BOX CMD...: a client that asks for it and dies before anything was started
early() {
	local b=$1 i p
	shift
	i=$(field "$b" init_pid)
	[ "${DEN_WALL:-}" != gvisor ] || i=$(pgrep -P "$i" -f runsc-sandbox) # there init is inside of that
	kill -STOP "$i"
	"$DEN" exec "$b" -- "$@" 2>/dev/null &
	p=$!
	sleep 0.5 # it has asked, and the keeper has asked init
	kill -KILL $p
	wait $p 2>/dev/null || :
	sleep 0.2
	kill -CONT "$i"
}

none_runs() {
	[ "$(running "$1")" = 0 ]
}

#@ root user
test_a_program_does_not_outlive_its_client_however_early_that_dies() {
	local b
	b=$(box)
	early "$b" sleep 987
	sleep 0.3
	soon 2 none_runs "$b" || fail "it runs: $(den ps "$b")"
	early "$b" /no/such/program
	soon 2 none_runs "$b" || fail "it is said to run: $(den ps "$b")"
	is "works still" "$(den exec "$b" -- echo yes)" yes
}

boxes_are() {
	[ "$(den ls --quiet | wc -l)" = "$1" ]
}

#@ root user
test_a_killed_bisect_or_build_leaves_no_box() {
	local p
	"$DEN" create --name a >/dev/null
	den exec a -- sh -c 'echo 1 >/root/f'
	"$DEN" bisect a -- sleep 60 2>/dev/null &
	p=$!
	soon 20 boxes_are 2
	kill -KILL $p
	soon 5 boxes_are 1 || fail "bisect left $(den ls)"
	mkdir "$TMP/context"
	printf 'FROM host\nRUN sleep 60\n' >"$TMP/context/Dockerfile"
	"$DEN" template build "$TMP/context" >/dev/null 2>&1 &
	p=$!
	soon 20 boxes_are 2
	kill -KILL $p
	soon 5 boxes_are 1 || fail "a build left $(den ls)"
	den rm --force a
}

#@ root user range
test_the_next_call_adopts_a_box_whose_keeper_died() {
	local b i k n
	b=$(box)
	i=$(field "$b" init_pid)
	den exec --detach --tag job "$b" -- sh -c 'echo before; sleep 2; echo after; exit 6'
	for n in 1 2 3; do
		k=$(field "$b" keeper_pid)
		kill -KILL "$k"
		is "exec" "$(den exec "$b" -- echo $n)" $n
		[ "$(field "$b" keeper_pid)" != "$k" ] || fail "no new keeper"
	done
	is init "$(field "$b" init_pid)" "$i"
	try timeout 20 "$DEN" attach "$b" job
	want_rc 6
	want_out "$(printf 'before\nafter')"
	is state "$(state_of "$b")" running
}

#@ root user
test_input_goes_on_after_the_keeper_died() {
	local b p
	b=$(box)
	mkfifo in
	"$DEN" exec "$b" -- cat <in >o &
	p=$!
	exec 7>in
	echo one >&7
	soon 10 grep -q one o
	kill -KILL "$(field "$b" keeper_pid)"
	sleep 0.5
	echo two >&7
	exec 7>&-
	rc=0
	wait $p || rc=$?
	is status $rc 0
	is output "$(cat o)" "$(printf 'one\ntwo')"
}

#@ root
test_limits_hold_after_the_keeper_died() {
	local b pids runtime
	# behind gVisor few are enough, and it takes longer
	case ${DEN_WALL:-} in gvisor) pids=20 runtime=20 ;; *) pids=100 runtime=6 ;; esac
	b=$(box --memory 64M --pids $pids --max-runtime ${runtime}s)
	den exec --detach --tag t --timeout 3s "$b" -- sleep 100
	kill -KILL "$(field "$b" keeper_pid)"
	try timeout 30 "$DEN" exec "$b" -- /attacks/attack-bomb memory 300000000
	want_rc 137
	want_err_has memory
	try timeout 30 "$DEN" exec "$b" -- /attacks/attack-bomb fork
	want_rc 3
	try timeout 10 "$DEN" attach "$b" t
	want_err_has timeout
	soon $((runtime + 6)) is_state "$b" stopped || fail "--max-runtime is forgotten"
}

#@ root user range
test_a_killed_run_takes_its_box_along() {
	local p
	"$DEN" run -- sh -c 'echo ready; exec sleep 1000' >o &
	p=$!
	soon 10 grep -q ready o
	kill -KILL $p
	wait $p 2>/dev/null || :
	soon 15 no_boxes || fail "the box stayed: $(boxes)"
}

#@ root user
test_a_killed_run_and_keeper_together_leave_nothing() {
	local p b
	"$DEN" run -- sh -c 'echo ready; exec sleep 1000' >o &
	p=$!
	soon 10 grep -q ready o
	soon 5 some_box || fail "'den ls' does not know the box of a running 'den run'"
	b=$(boxes)
	kill -KILL "$(field "$b" keeper_pid)" $p
	wait $p 2>/dev/null || :
	# gc spares what is younger than ten seconds: it may be in the making.
	soon 20 gc_leaves_no_boxes || fail "the box stayed: $(boxes)"
}

some_box() {
	[ -n "$(boxes)" ]
}

gc_leaves_no_boxes() {
	den gc >/dev/null 2>&1
	no_boxes
}

#@ root user range
test_a_killed_init_stops_the_box_with_a_reason() {
	local b p
	b=$(box)
	echo kept | den fs write "$b" /root/f
	"$DEN" exec "$b" -- sh -c 'echo ready; exec sleep 1000' >o 2>e &
	p=$!
	soon 10 grep -q ready o
	kill -KILL "$(field "$b" init_pid)"
	rc=0
	wait $p || rc=$?
	[ $rc != 0 ] || fail "an exec whose box died ended with 0"
	soon 10 is_state "$b" stopped || fail "still $(state_of "$b")"
	[ -n "$(field "$b" reason)" ] || fail "no reason"
	den start "$b"
	is file "$(den fs cat "$b" /root/f)" kept
}

#@ root user range
test_killed_init_and_keeper_leave_a_box_that_can_be_started() {
	local b i
	b=$(box)
	echo kept | den fs write "$b" /root/f
	den exec --detach "$b" -- sleep 1000
	i=$(field "$b" init_pid)
	kill -KILL "$(field "$b" keeper_pid)"
	kill -KILL "$i"
	soon 5 dead "$i"
	try den ls
	want_rc 0
	try den exec "$b" -- true
	want_rc 125
	is state "$(state_of "$b")" stopped
	den start "$b"
	is file "$(den fs cat "$b" /root/f)" kept
	kill -KILL "$(field "$b" init_pid)" "$(field "$b" keeper_pid)"
	den rm --force "$b"
	no_boxes
}

#@ root user
test_a_create_that_is_killed_is_whole_or_nothing() {
	local i p b
	den run -- true
	for i in 0 2 4 6 8 10 13 16 20 25 30 40 60 100; do
		"$DEN" create --name "k$i" >/dev/null 2>&1 &
		p=$!
		sleep "$(printf '0.%03d' $i)"
		kill -KILL $p 2>/dev/null || :
		wait $p 2>/dev/null || :
	done
	sleep 1
	den gc >/dev/null
	for b in $(boxes); do
		is "state of $b" "$(state_of "$b")" running
		is "exec in $b" "$(den exec "$b" -- echo x)" x
	done
	# Every name is either a whole box or free again.
	for i in 0 2 4 6 8 10 13 16 20 25 30 40 60 100; do
		if den inspect "k$i" >/dev/null 2>&1; then
			den rm --force "k$i"
		fi
		den create --name "k$i" >/dev/null || fail "the name k$i is lost"
		den rm --force "k$i"
	done
}

#@ root user
test_a_delete_that_is_killed_is_finished_by_gc() {
	local i p k b
	for i in 0 1 2 3 5 8 12 20; do
		b=$(den create --name d)
		k=$(field "$b" keeper_pid)
		"$DEN" rm --force "$b" >/dev/null 2>&1 &
		p=$!
		sleep "$(printf '0.%03d' $i)"
		kill -KILL $p $k 2>/dev/null || :
		wait $p 2>/dev/null || :
		soon 10 dead "$k" # on a busy machine it dies a little later, and what it holds until then is its own
		den gc >/dev/null
		if den inspect "$b" >/dev/null 2>&1; then
			[ "$(state_of "$b")" != deleting ] || fail "half deleted after gc"
			den rm --force "$b"
		fi
		no_boxes || fail "left: $(boxes)"
	done
}

#@ root user timeout=90 fresh
test_20_creates_and_deletes_at_once() {
	local i
	for i in $(seq 20); do
		(
			b=$(den create --name "p$i") || exit 1
			[ "$(den exec "$b" -- hostname)" = "p$i" ] || exit 1
			den rm --force "$b" || exit 1
			echo fine >"ok$i"
		) 2>"e$i" &
	done
	wait
	for i in $(seq 20); do
		[ -e "ok$i" ] || fail "box $i: $(cat "e$i")"
	done
	no_boxes
}

#@ root user fresh
test_one_name_for_ten_creates_at_once() {
	local i
	for i in $(seq 10); do
		(rc=0; "$DEN" create --name same >"c$i" 2>/dev/null || rc=$?; echo $rc >"r$i") &
	done
	wait
	is "creates that succeeded" "$(cat r* | grep -cx 0)" 1
	is "creates that were refused" "$(cat r* | grep -cx 4)" 9
	is "boxes" "$(boxes | wc -l)" 1
}

#@ root user
test_two_starts_at_once_give_one_running_box() {
	local b i n
	b=$(box)
	for n in 1 2 3; do
		den stop "$b"
		for i in 1 2 3 4; do
			(rc=0; timeout 20 "$DEN" start "$b" 2>/dev/null || rc=$?; echo $rc >"r$i") &
		done
		wait
		grep -qx 0 r1 r2 r3 r4 || fail "no start succeeded: $(cat r1 r2 r3 r4)"
		not grep -qvx -e 0 -e 4 r1 r2 r3 r4 || fail "statuses: $(cat r1 r2 r3 r4)"
		is state "$(state_of "$b")" running
		is exec "$(den exec "$b" -- echo x)" x
	done
}

#@ root user
test_deleting_a_box_ends_its_execs() {
	local b p t
	b=$(box)
	"$DEN" exec "$b" -- sh -c 'echo ready; exec sleep 1000' >o 2>e &
	p=$!
	soon 10 grep -q ready o
	t=$(now_ms)
	den rm --force "$b"
	rc=0
	wait $p || rc=$?
	at_most milliseconds $(($(now_ms) - t)) 8000
	[ $rc != 0 ] || fail "the exec of a deleted box ended with 0"
}

#@ root user
test_a_stop_ends_execs_with_the_reason() {
	local b p
	b=$(box)
	"$DEN" exec "$b" -- sh -c 'echo ready; exec sleep 1000' >o 2>e &
	p=$!
	soon 10 grep -q ready o
	den stop "$b"
	rc=0
	wait $p || rc=$?
	is status $rc 143
	grep -qi stop e || fail "no reason: $(cat e)"
}

#@ root user
test_a_frozen_reader_does_not_hold_the_box() {
	local b p
	b=$(box)
	"$DEN" exec "$b" -- yes >/dev/null &
	p=$!
	sleep 0.3
	kill -STOP $p
	is "another exec" "$(timeout 10 "$DEN" exec "$b" -- echo x)" x
	timeout 10 "$DEN" ls >/dev/null
	timeout 20 "$DEN" stop --grace 1s "$b"
	kill -CONT $p
	wait $p || :
}

#@ root user range
test_a_state_directory_may_be_deep() {
	local d b
	d=$TMP/$(printf 'a%.0s' $(seq 120))/$(printf 'b%.0s' $(seq 120))/state
	export DEN_STATE=$d
	b=$(box --name deep)
	is exec "$(den exec deep -- echo x)" x
	den stop deep
	den start deep
	echo y | den fs write deep /root/f
	is file "$(den fs cat deep /root/f)" y
	den rm --force deep
	is "left in boxes" "$(ls "$d/boxes")" ""
}

#@ root user
test_a_state_directory_may_have_any_name() {
	local d="$TMP/sp ace:co,lon\\back\"q"$'\n''nl'
	export DEN_STATE=$d
	try den run -- echo x
	want_rc 0
	want_out x
}

#@ root user
test_a_state_directory_that_others_can_write_is_refused() {
	mkdir -m 777 open
	DEN_STATE=$PWD/open try den create
	want_rc 5
	want_err_has open
	is "made there" "$(ls -A open)" ""
	mkdir -m 775 group
	DEN_STATE=$PWD/group try den create
	want_rc 5
	if [ "$VARIANT" = root ]; then
		mkdir -m 700 theirs
		chown 1234 theirs
		DEN_STATE=$PWD/theirs try den create
		want_rc 5
	else
		DEN_STATE=/root/no try den create
		[ "$rc" != 0 ] || fail "made in /root"
	fi
	DEN_STATE=/dev/null try den create
	[ "$rc" != 0 ]
	DEN_STATE=/proc/nothing try den create
	[ "$rc" != 0 ]
}

#@ root
test_a_full_disk_of_the_host_is_told_and_leaves_nothing() {
	mkdir full
	mount -t tmpfs -o size=200m tmpfs full
	trap 'umount -l "$TMP/full"; finish' EXIT
	export DEN_STATE=$PWD/full/state
	local b
	b=$(box)
	echo kept | den fs write "$b" /root/f
	head -c 300m /dev/zero >full/ballast 2>/dev/null || :
	try timeout 30 "$DEN" create
	[ "$rc" != 0 ] || fail "created on a full disk"
	[ "$rc" != 124 ]
	is "boxes" "$(boxes)" "$b"
	is "folders" "$(ls full/state/boxes)" "$b"
	is "file" "$(den fs cat "$b" /root/f)" kept
	try sh -c 'head -c 1000000 /dev/zero | "$DEN" fs write --atomic "$0" /root/f' "$b"
	[ "$rc" != 0 ] || fail "written to a full disk"
	is "file" "$(den fs cat "$b" /root/f)" kept
	# Deleting must work exactly then.
	den rm --force "$b"
	rm full/ballast
	is "afterwards" "$(den run -- echo x)" x
}

#@ root user
test_strangers_files_in_the_state_directory_do_no_harm() {
	local b
	b=$(box)
	mkdir "$DEN_STATE/boxes/stranger" "$DEN_STATE/boxes/b-aaaaaaaaaaaaaaaaaa"
	touch "$DEN_STATE/boxes/file"
	is "exec" "$(den exec "$b" -- echo x)" x
	try den ls
	want_rc 0
	timeout 20 "$DEN" gc >/dev/null
	is "exec" "$(den exec "$b" -- echo x)" x
	rm -rf "$DEN_STATE/boxes/stranger" "$DEN_STATE/boxes/file" "$DEN_STATE/boxes/b-aaaaaaaaaaaaaaaaaa"
}

#@ root user
test_gc_takes_nothing_that_is_owned() {
	local b c i
	b=$(box --name run)
	c=$(box --name stopped)
	den stop stopped
	i=$(field "$b" init_pid)
	for _ in 1 2 3 4; do den gc >/dev/null & done
	wait
	is init "$(field "$b" init_pid)" "$i"
	is exec "$(den exec run -- echo x)" x
	den start stopped
	kill -KILL "$(field "$b" keeper_pid)"
	den gc >/dev/null
	is exec "$(den exec run -- echo x)" x
	is "init after a gc without keeper" "$(field "$b" init_pid)" "$i"
}

test_states_do_not_see_each_other() {
	local b
	b=$(box --name mine)
	DEN_STATE=$TMP/other try den exec mine -- true
	want_rc 125
	DEN_STATE=$TMP/other try den ls --quiet
	want_out ""
	DEN_STATE=$TMP/other try den gc
	want_rc 0
	is exec "$(den exec mine -- echo x)" x
}

#@ root
test_a_recycled_pid_is_not_taken_for_init() {
	# The box's init is dead and its number belongs to somebody else: not to be signalled, not adopted.
	local b i k
	b=$(box)
	i=$(field "$b" init_pid)
	k=$(field "$b" keeper_pid)
	kill -KILL "$k" "$i"
	soon 5 dead "$i"
	[ -w /proc/sys/kernel/ns_last_pid ] || skip "the next pid cannot be chosen here"
	local n
	for n in $(seq 40); do
		echo $((i - 1)) >/proc/sys/kernel/ns_last_pid 2>/dev/null || skip "the next pid cannot be chosen here"
		sleep 300 &
		[ $! != "$i" ] || break
		kill $!
	done
	if ! [ -d "/proc/$i" ]; then skip "the pid was not given out again"; fi
	is state "$(state_of "$b")" stopped
	den rm --force "$b"
	alive "$i" || fail "a stranger with init's old pid was killed"
	kill "$i"
}

#@ root user timeout=120
test_an_upload_whose_keeper_dies_is_whole_or_refused() {
	local b
	b=$(box)
	B=$b /usr/bin/python3 - <<'PY'
import json, os, random, signal, subprocess, sys, threading
den, box = os.environ["DEN"], os.environ["B"]
rand = random.Random(7)
bad = []
for i in range(60):
    text = b"%06d\n" % i * 50000
    keeper = json.loads(subprocess.check_output([den, "inspect", "--json", box]))["keeper_pid"]
    through_file = i % 2
    argv = [den, "fs", "write", "--atomic", box, "/root/f"] if through_file else [den, "exec", box, "--", "cat"]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t = threading.Timer(rand.uniform(0, 0.008), lambda: os.kill(keeper, signal.SIGKILL))
    t.start()
    try:
        out, err = p.communicate(text, timeout=10)
    except subprocess.TimeoutExpired:
        bad.append("%d: %s hangs" % (i, argv[1]))
        p.kill()
        p.communicate()
        continue
    finally:
        t.cancel()
        t.join()
    if p.returncode == 0:
        have = out if not through_file else subprocess.run([den, "fs", "cat", box, "/root/f"], stdout=subprocess.PIPE).stdout
        if have != text:
            bad.append("%d: %s ended with 0, but %d of %d bytes arrived" % (i, argv[1], len(have), len(text)))
for b in bad:
    print(b)
sys.exit(1 if bad else 0)
PY
	# What served a broken upload must be gone, too.
	soon 5 only_init "$b" || fail "left in the box: $(den ps "$b" | sed -n '/^Processes/,$p')"
}

only_init() {
	[ "$(den ps --json "$1" | /usr/bin/python3 -c 'import json, sys; print(len(json.load(sys.stdin)["processes"]))')" = 1 ]
}

#@ root user
test_who_never_leaves_the_line_of_the_database_does_not_keep_others_from_it() {
	local b p
	b=$(box)
	(exec 9>"$DEN_STATE/den.db-line" && flock 9 && exec sleep 60) &
	p=$!
	sleep 0.3
	den lease "$b" --ttl 1h
	field "$b" expires | grep -q 20
	alive "$p"
	kill "$p"
}
