# A box's life: run, create, exec, and everything that people do with them.

#@ root user range
test_run_prints_what_the_program_prints() {
	try den run -- echo hello
	want_rc 0
	want_out hello
	is stderr "$err" ""
	no_boxes || fail "the box of 'den run' stayed: $(boxes)"
}

#@ root user range
test_exit_statuses_are_the_programs() {
	local b n
	b=$(box)
	for n in 0 1 3 77 125 126 127 255; do
		try den exec "$b" -- sh -c "exit $n"
		want_rc $n
	done
	try den run -- sh -c 'exit 3'
	want_rc 3
	try den run -- sh -c 'kill -TERM $$'
	want_rc 143
	try den exec "$b" -- sh -c 'kill -KILL $$'
	want_rc 137
	try den exec "$b" -- sh -c 'kill -SEGV $$'
	want_rc 139
}

#@ root user range
test_a_program_that_is_not_there_is_127_and_one_that_cannot_run_126() {
	local b
	b=$(box)
	try den exec "$b" -- no-such-program-at-all
	want_rc 127
	want_err_has no-such-program-at-all
	try den exec "$b" -- /no/such/path
	want_rc 127
	try den exec "$b" -- /etc/passwd
	want_rc 126
	try den exec "$b" -- /usr
	want_rc 126
	try den run -- no-such-program-at-all
	want_rc 127
	no_boxes_but "$b"
	den exec "$b" -- sh -c 'printf "#!/no/such/interpreter\n" >/tmp/x; chmod 755 /tmp/x'
	try den exec "$b" -- /tmp/x
	want_rc 127
}

no_boxes_but() {
	is "list of boxes" "$(boxes)" "$1"
}

test_den_failing_itself_is_125() {
	try den run --template no-such-template -- true
	want_rc 125
	want_err_has no-such-template
	try den run --no-such-option -- true
	want_rc 125
	try den exec no-such-box -- true
	want_rc 125
	want_err_has no-such-box
	no_boxes || fail "a failed run left $(boxes)"
}

#@ root user range
test_50_megabytes_of_stdin_pass_unchanged() {
	local b want
	b=$(box)
	head -c 52428800 /dev/urandom >in
	want=$(sum in)
	is "file through exec" "$(den exec "$b" -- cat <in | sum)" "$want"
	is "pipe through exec" "$(cat in | den exec "$b" -- cat | sum)" "$want"
	is "pipe through run" "$(cat in | den run -- cat | sum)" "$want"
	is "counted inside" "$(den exec "$b" -- sha256sum <in | cut -d' ' -f1)" "$want"
}

test_stdout_and_stderr_stay_apart() {
	try den run -- sh -c 'echo one; echo two >&2; echo three'
	want_rc 0
	want_out "$(printf 'one\nthree')"
	is stderr "$err" two
}

#@ root user waits
test_output_without_newline_arrives() {
	den run -- printf abc >o
	is size "$(stat -c %s o)" 3
	local b
	b=$(box)
	timeout 20 "$DEN" exec "$b" -- sh -c 'printf early; sleep 5' >o &
	soon 3 test -s o || fail "output without a newline is held back"
	wait
}

test_every_byte_passes_unchanged() {
	/usr/bin/python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 5000)' >in
	den run -- cat <in >o
	cmp in o
	den run -- sh -c 'cat >&2' <in 2>e
	cmp in e
}

#@ root user timeout=90 waits
test_200_megabytes_to_a_slow_reader_need_no_memory() {
	local b k i most=0 kb p
	b=$(box)
	k=$(field "$b" keeper_pid)
	i=$(field "$b" init_pid)
	mkfifo pipe
	"$DEN" exec "$b" -- head -c 209715200 /dev/zero >pipe &
	local cli=$!
	/usr/bin/python3 -c '
import sys, time
n = 0
f = open("pipe", "rb", buffering=0)
time.sleep(2)
while True:
    d = f.read(1 << 20)
    if not d: break
    if n < 20 << 20: time.sleep(0.02)
    n += len(d)
print(n)' >count &
	local reader=$!
	while alive $reader; do
		for p in $k $i $cli; do
			kb=$(rss_kb $p)
			if [ "${kb:-0}" -gt $most ]; then most=$kb; fi
		done
		sleep 0.1
	done
	wait $cli
	is "bytes read" "$(cat count)" 209715200
	at_most "resident kilobytes" $most 40000
	at_least "resident kilobytes" $most 100
}

test_a_reader_that_leaves_early_ends_it_promptly() {
	local t
	t=$(now_ms)
	timeout 20 "$DEN" run -- yes | head -1 >o
	at_most milliseconds $(($(now_ms) - t)) 5000
	is output "$(cat o)" y
	soon 10 no_boxes || fail "the box stayed: $(boxes)"
}

#@ root user range
test_closed_standard_streams_do_no_harm() {
	local b
	b=$(box)
	timeout 10 "$DEN" run -- cat <&- || fail "closed stdin: status $?"
	timeout 10 "$DEN" exec "$b" -- cat <&- || fail "closed stdin: status $?"
	rc=0
	timeout 10 "$DEN" exec "$b" -- echo hi >&- || rc=$?
	[ $rc != 124 ] || fail "closed stdout hangs"
	rc=0
	timeout 10 "$DEN" exec "$b" -- sh -c 'echo hi; echo e >&2' <&- >&- 2>&- || rc=$?
	[ $rc != 124 ] || fail "closed streams hang"
	is "afterwards" "$(den exec "$b" -- echo fine)" fine
}

test_a_full_device_as_stdout_is_told() {
	rc=0
	timeout 10 "$DEN" run -- echo hi >/dev/full 2>e || rc=$?
	[ $rc != 0 ] || fail "nobody noticed that the output was lost"
	[ $rc != 124 ] || fail hangs
}

#@ root user range
test_the_environment_of_the_caller_does_not_enter() {
	SECRET_OF_HOST=leaked LD_PRELOAD_X=1 try den run -- env
	want_rc 0
	not grep -q leaked <<<"$out" || fail "the environment came along: $out"
	want_out_has '^PATH='
	want_out_has '^HOME=/root$'
	PASSED=value try den run --env PASSED --env A=1 --env 'B=two words' --env EMPTY= -- env
	want_out_has '^PASSED=value$'
	want_out_has '^A=1$'
	want_out_has '^B=two words$'
	want_out_has '^EMPTY=$'
	local b
	b=$(box --env BOXWIDE=1)
	is boxwide "$(den exec "$b" -- sh -c 'echo $BOXWIDE')" 1
	is overridden "$(den exec --env BOXWIDE=2 "$b" -- sh -c 'echo $BOXWIDE')" 2
	try den run --env =x -- true
	want_rc 125
}

#@ root user range
test_arguments_arrive_as_given() {
	local args=('a b' "it's" 'say "x"' $'new\nline' 'ünïcödé 漢字' '' '--help' '--' '*' '$HOME' '\' $'\xff\xfe' $'\e[31m')
	printf '%s\0' "${args[@]}" >want
	den run -- printf '%s\0' "${args[@]}" >o
	cmp want o
	local b
	b=$(box)
	den exec "$b" printf '%s\0' "${args[@]}" >o
	cmp want o
}

test_options_after_the_program_are_the_programs() {
	try den run ls -d --color=never /usr
	want_rc 0
	want_out /usr
	local b
	b=$(box)
	try den exec "$b" echo --tag x --help
	want_out "--tag x --help"
}

#@ root user range
test_a_deleted_working_directory_does_no_harm() {
	mkdir d
	cd d
	rmdir ../d
	try den run -- pwd
	want_rc 0
	want_out /root
}

#@ root user range
test_a_bare_environment_is_enough() {
	try env -i DEN_STATE="$DEN_STATE" "$DEN" run -- echo hi
	want_rc 0
	want_out hi
	try env -i DEN_STATE="$DEN_STATE" PATH=/usr/bin:/bin "$DEN" run -- echo hi
	want_rc 0
	try env -i DEN_STATE="$DEN_STATE" HOME=/nonexistent LANG=xx_YY TERM=nonsense "$DEN" run -- echo hi
	want_rc 0
	try env -u HOME -u XDG_STATE_HOME -u DEN_STATE "$DEN" --state "$DEN_STATE" ls
	want_rc 0
}

test_a_home_without_permission_does_no_harm() {
	mkdir home
	chmod 000 home
	HOME=$PWD/home try den run -- echo hi
	want_rc 0
	chmod 700 home
}

test_a_large_environment_does_no_harm() {
	local i args=()
	for i in $(seq 200); do args+=(--env "VAR_$i=$(printf 'x%.0s' $(seq 200))"); done
	try den run "${args[@]}" -- sh -c 'env | grep -c ^VAR_'
	want_out 200
	export BIG
	BIG=$(head -c 100000 /dev/zero | tr '\0' x)
	try den run --env BIG -- sh -c 'echo ${#BIG}'
	want_out 100000
}

#@ root user range
test_the_box_knows_its_name_and_place() {
	try den run --hostname somewhere -- sh -c 'hostname; cat /etc/hostname; pwd; echo $HOME'
	want_out "$(printf 'somewhere\nsomewhere\n/root\n/root')"
	try den run --name named -- hostname
	want_out named
	try den run --workdir /usr/bin -- pwd
	want_out /usr/bin
	try den run --workdir /no/such/dir -- pwd
	want_rc 125
	want_err_has /no/such/dir
	try den run -- sh -c 'id -u; id -g; whoami'
	want_out "$(printf '0\n0\nroot')"
	try den run -- getent hosts "$(hostname)"
	[ $rc != 0 ] || [ "$(hostname)" = localhost ] || fail "the host's name is known inside: $out"
}

#@ root range
test_there_is_an_ordinary_user_inside() {
	try den run --user user -- sh -c 'id -u; id -g; whoami; echo $HOME; pwd; touch ~/x && echo wrote; touch /usr/x 2>/dev/null || echo refused'
	want_rc 0
	want_out "$(printf '1000\n1000\nuser\n/home/user\n/home/user\nwrote\nrefused')"
	try den run --user 1000:1000 -- id -u
	want_out 1000
	try den run --user 4242 -- id -u
	want_out 4242
	try den run --user nobody-knows -- true
	want_rc 125
	want_err_has nobody-knows
}

#@ user
test_a_user_that_cannot_exist_here_is_refused_with_the_reason() {
	try den run --user user -- id -u
	want_rc 125
	want_err_has 'subuid|range|newuidmap'
}

#@ root range
test_root_inside_is_real() {
	local b
	b=$(box)
	den exec "$b" -- sh -c '
		set -e
		useradd -m agent
		touch /tmp/f && chown agent /tmp/f && [ "$(stat -c %U /tmp/f)" = agent ]
		cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id
		[ "$(su agent -c "/tmp/id -u -r; /tmp/id -u" | tr "\n" " ")" != "0 0 " ]
		[ "$(su agent -c "/tmp/id -u")" = 0 ]
		mkdir -p /opt/x && touch /usr/bin/added /etc/added && rm /usr/bin/added'
}

#@ root range
test_sudo_works_inside() {
	[ -x /usr/bin/sudo ] || skip "no sudo on this machine"
	local b
	b=$(box)
	den exec "$b" -- sh -c 'printf "user ALL=(ALL) NOPASSWD: ALL\n" >/etc/sudoers.d/t && chmod 440 /etc/sudoers.d/t' ||
		fail "cannot write /etc/sudoers.d"
	try den exec --user user "$b" -- sudo -n id -u
	want_rc 0
	want_out 0
}

#@ root user range
test_a_mount_shows_a_host_directory() {
	mkdir d
	echo content >d/f
	try den run --mount "$PWD/d:/data:ro" -- sh -c 'cat /data/f; echo x >/data/g 2>/dev/null || echo refused'
	want_out "$(printf 'content\nrefused')"
	[ ! -e d/g ] || fail "a read-only mount was written"
	try den run --mount "$PWD/d/f:/one/file:ro" -- cat /one/file
	want_out content
	try den run --mount "$PWD/none:/x" -- true
	want_rc 125
	want_err_has none
	try den run --mount "relative:/x" -- true
	want_rc 125
	try den run --mount "$PWD/d:relative" -- true
	want_rc 125
	try den run --mount "$PWD/d" -- true
	want_rc 125
}

#@ user range
test_a_writable_mount_is_written_as_the_caller() {
	mkdir d
	den run --mount "$PWD/d:/data" -- sh -c 'echo hi >/data/f'
	is owner "$(stat -c %u d/f)" "$(id -u)"
}

test_a_mount_cannot_cover_what_the_wall_needs() {
	mkdir d
	local at
	for at in / /proc /proc/self /dev /dev/null ../../x; do
		try den run --mount "$PWD/d:$at" -- true
		[ "$rc" != 0 ] || fail "mounted at $at"
		want_rc 125
	done
	no_boxes
}

#@ root user range
test_create_says_an_id_and_the_box_lives_on() {
	local b
	b=$(den create)
	grep -Eqx 'b-[a-z2-7]{18}' <<<"$b" || fail "not an id: $b"
	is state "$(state_of "$b")" running
	den exec "$b" -- sh -c 'echo kept >/root/f'
	is "file" "$(den exec "$b" -- cat /root/f)" kept
	is "list" "$(boxes)" "$b"
	try den rm "$b"
	want_rc 4
	try den rm --force "$b"
	want_rc 0
	try den inspect "$b"
	want_rc 3
	try den rm --force "$b"
	want_rc 3
}

#@ root user range
test_boxes_are_found_by_name_id_and_prefix() {
	local b
	b=$(den create --name first.box_1)
	is "by name" "$(den exec first.box_1 -- echo x)" x
	is "by id" "$(den exec "$b" -- echo x)" x
	is "by prefix" "$(den exec "${b:0:10}" -- echo x)" x
	try den inspect "${b:0:5}"
	want_rc 3
	try den create --name first.box_1
	want_rc 4
	want_err_has first.box_1
	is "only one" "$(boxes)" "$b"
	den rm --force first.box_1
	den create --name first.box_1 >/dev/null
}

test_bad_names_are_refused() {
	local n
	for n in '' A ../x a/b 'a b' .x -x "$(printf 'x%.0s' $(seq 64))" b-aaaaaaaaaaaaaaaaaa $'a\nb'; do
		try den create "--name=$n"
		want_rc 2
	done
	no_boxes
}

test_a_misspelled_option_or_verb_names_the_nearest() {
	try den create --memry 1g
	want_rc 2
	want_err_has '--memory'
	try den crate
	want_rc 2
	want_err_has create
	try den inspect
	want_rc 2
	try den create --memory lots
	want_rc 2
	want_err_has lots
	try den create --cpus 0
	want_rc 2
	try den create --timeout 3 --pids -1
	want_rc 2
	try den run --tty --no-tty -- true
	want_rc 125
	want_err_has no-tty
	try den create --net anything
	[ "$rc" = 2 ] || [ "$rc" = 8 ] || fail "status $rc"
	want_err_has none
	try den create --wall paper
	[ "$rc" = 2 ] || [ "$rc" = 8 ] || fail "status $rc"
	try den run --net=host-test -- true
	want_rc 125
	no_boxes
}

#@ root user range
test_stop_ends_processes_and_keeps_files() {
	local b
	b=$(box --name s)
	den exec "$b" -- sh -c 'echo kept >/root/f; echo t >/tmp/t'
	den exec --detach "$b" -- sleep 1000
	den stop "$b"
	is state "$(state_of "$b")" stopped
	is "init" "$(field "$b" init_pid)" 0
	try den exec "$b" -- true
	want_rc 125
	want_err_has start
	try den ls
	want_out_has stopped
	den start "$b"
	is state "$(state_of "$b")" running
	is file "$(den exec "$b" -- cat /root/f)" kept
	not den exec "$b" -- pgrep -x sleep
	den stop "$b"
	try den rm "$b"
	want_rc 0
}

#@ root user range
test_stop_ends_what_ignores_it() {
	local b t
	b=$(box)
	den exec --detach "$b" -- /attacks/attack-bomb stubborn
	den exec "$b" -- /attacks/attack-bomb daemon /tmp/beat
	t=$(now_ms)
	den stop --grace 1s "$b"
	t=$(($(now_ms) - t))
	at_most milliseconds $t 5000
	is state "$(state_of "$b")" stopped
}

test_wait_returns_when_the_box_stops() {
	local b t
	b=$(box)
	(sleep 1; den stop "$b") &
	t=$(now_ms)
	timeout 20 "$DEN" wait "$b"
	at_least milliseconds $(($(now_ms) - t)) 700
	timeout 5 "$DEN" wait "$b"
	wait
}

#@ root waits
test_pause_holds_every_process_and_resume_lets_it_go_on() {
	local b a c
	b=$(box)
	den exec "$b" -- /attacks/attack-bomb daemon /tmp/beat
	sleep 0.5
	den pause "$b"
	is state "$(state_of "$b")" paused
	a=$(field "$b" init_pid)
	c=$(stat -c %s "/proc/$a/root/tmp/beat")
	sleep 0.7
	is "beats while paused" "$(stat -c %s "/proc/$a/root/tmp/beat")" "$c"
	rc=0
	timeout 10 "$DEN" exec "$b" -- true 2>e || rc=$?
	is "exec in a paused box" $rc 125
	den resume "$b"
	is state "$(state_of "$b")" running
	sleep 0.7
	at_least "beats" "$(den exec "$b" -- stat -c %s /tmp/beat)" $((c + 1))
	den pause "$b"
	den rm --force "$b"
}

#@ user
test_pause_without_cgroup_is_refused_or_works() {
	local b
	b=$(box)
	try den pause "$b"
	if [ "$rc" = 8 ]; then
		want_err_has cgroup
		is state "$(state_of "$b")" running
		return
	fi
	want_rc 0
	is state "$(state_of "$b")" paused
	den resume "$b"
	is "afterwards" "$(den exec "$b" -- echo x)" x
}

#@ root user
test_json_is_json_and_tells_the_truth() {
	local b
	b=$(box --name j --pids 100)
	den exec --detach --tag t "$b" -- sleep 1000
	den inspect --json "$b" | is_json
	den ls --json | is_json
	den ps --json "$b" | is_json
	den version --json | is_json
	den doctor --json | is_json
	den gc --json | is_json
	den stats --once --json "$b" | is_json
	den fs stat --json "$b" /etc/passwd | is_json
	is id "$(field "$b" id)" "$b"
	is name "$(field "$b" name)" j
	is pids "$(field "$b" pids)" 100
	alive "$(field "$b" init_pid)"
	alive "$(field "$b" keeper_pid)"
	den ls --json | /usr/bin/python3 -c 'import json, sys; l = json.load(sys.stdin); assert len(l) == 1 and l[0]["name"] == "j", l'
	try den inspect --json nope
	want_rc 3
	printf '%s' "$err" | is_json
	want_err_has not_found
}

#@ root user range
test_a_detached_program_runs_on_and_can_be_followed() {
	local b
	b=$(box)
	try den exec --detach --tag job "$b" -- sh -c 'echo first; sleep 1; echo second; exit 5'
	want_rc 0
	grep -Eqx '[0-9]+' <<<"$out" || fail "no pid: $out"
	try den exec --detach --tag job "$b" -- sleep 3
	want_rc 125
	try timeout 10 "$DEN" attach "$b" job
	want_rc 5
	want_out "$(printf 'first\nsecond')"
	try timeout 10 "$DEN" attach "$b" job
	want_rc 5
	want_out "$(printf 'first\nsecond')"
	try den logs "$b" job
	want_out "$(printf 'first\nsecond')"
	try den attach "$b" nothing-like-it
	want_rc 125
	den ps "$b" | grep -q job
}

test_logs_keep_the_last_bytes_only() {
	local b
	b=$(box)
	den exec --detach --tag big --keep 100K "$b" -- sh -c 'seq 1000000; echo end'
	soon 20 sh -c '"$DEN" logs "$0" big | tail -1 | grep -qx end' "$b"
	local n
	n=$(den logs "$b" big | wc -c)
	at_most "bytes kept" "$n" 140000
	at_least "bytes kept" "$n" 50000
}

#@ root user range
test_a_background_process_outlives_its_exec() {
	local b t
	b=$(box)
	t=$(now_ms)
	try timeout 20 "$DEN" exec "$b" -- sh -c 'sleep 500 >/dev/null 2>&1 & echo started'
	want_rc 0
	want_out started
	at_most milliseconds $(($(now_ms) - t)) 3000
	sleep 0.3
	den exec "$b" -- pgrep -x sleep >/dev/null || fail "the background process is gone"
}

# The exec ends with its program; whoever still holds its output gets a second, no more.
#@ root user range
test_a_held_open_pipe_does_not_hold_the_exec() {
	local b t
	b=$(box)
	t=$(now_ms)
	try timeout 30 "$DEN" exec "$b" -- /attacks/attack-bomb hold
	want_rc 7
	want_out "main is done"
	at_most milliseconds $(($(now_ms) - t)) 3000
	den exec "$b" -- pgrep -f 'attack-bomb hold' >/dev/null || fail "the daemon was killed"
}

#@ root user range
test_kill_reaches_the_program_its_group_or_its_tree() {
	local b
	b=$(box)
	den exec --detach --tag one "$b" -- sleep 1000
	den kill --signal TERM "$b" one
	try timeout 10 "$DEN" attach "$b" one
	want_rc 143
	den exec --detach --tag two "$b" -- sh -c '/attacks/attack-bomb daemon /tmp/beat; sleep 1000 & sleep 1000'
	soon 5 den exec "$b" -- test -s /tmp/beat
	den kill --signal KILL --tree "$b" two
	try timeout 10 "$DEN" attach "$b" two
	want_rc 137
	soon 5 not den exec "$b" -- pgrep -f 'attack-bomb daemon' >/dev/null || fail "the daemon lives"
	not den exec "$b" -- pgrep -x sleep >/dev/null || fail "a child lives"
	try den kill "$b" two
	[ "$rc" = 3 ] || [ "$rc" = 4 ] || fail "killing what has ended: $(told)"
	try den kill "$b" 999999
	want_rc 3
	try den kill --signal NONSENSE "$b" two
	want_rc 2
	# A pid that no exec has is none of den's business, init least of all.
	try den kill --signal KILL "$b" 1
	[ "$rc" != 0 ] || fail "init can be killed by 'den kill'"
	den exec "$b" -- true
}

#@ root user range
test_ps_lists_execs_and_processes() {
	local b
	b=$(box)
	den exec --detach --tag mark "$b" -- sh -c 'exec -a renamed sleep 1234' || den exec --detach --tag mark2 "$b" -- sleep 1234
	den ps "$b" | grep -q 'sleep 1234'
	local n
	n=$(den ps --json "$b" | /usr/bin/python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["execs"] and d["processes"], d
print(max(p["pid"] for p in d["processes"]))')
	at_most "a pid, as seen inside," "$n" 1000
}

test_signals_to_run_reach_the_program() {
	local p
	"$DEN" run -- sh -c 'trap "echo got; exit 9" TERM; echo ready; while :; do sleep 0.1; done' >o &
	p=$!
	soon 10 grep -q ready o
	kill -TERM $p
	rc=0
	wait $p || rc=$?
	is status $rc 9
	grep -q got o
	soon 5 no_boxes
	# The shell starts background programs with SIGINT ignored, and den leaves that as it is.
	env --default-signal=INT "$DEN" run -- sh -c 'echo ready; exec sleep 100' >o &
	p=$!
	soon 10 grep -q ready o
	kill -INT $p
	rc=0
	wait $p || rc=$?
	is status $rc 130
}

#@ root user
test_a_command_goes_when_its_den_goes() {
	local b p
	b=$(box)
	"$DEN" exec "$b" -- sh -c '/attacks/attack-bomb daemon /tmp/beat; echo ready; exec sleep 4321' >o &
	p=$!
	soon 10 grep -q ready o
	kill -KILL $p
	wait $p 2>/dev/null || :
	soon 10 not den exec "$b" -- pgrep -f 'sleep 4321|attack-bomb' >/dev/null ||
		fail "it lives on: $(den ps "$b" | sed -n '/^Processes/,$p')"
}

test_no_command_is_a_shell() {
	try sh -c 'echo "echo \$0 from a shell" | "$DEN" run'
	want_rc 0
	want_out_has 'sh from a shell'
}

test_run_can_keep_its_box() {
	try den run --rm=false --name stay -- sh -c 'echo x >/root/f; exit 4'
	want_rc 4
	is file "$(den exec stay -- cat /root/f)" x
}

#@ root user
test_20_execs_at_once_do_not_mix() {
	local b i
	b=$(box)
	for i in $(seq 20); do
		den exec "$b" -- sh -c "for n in 1 2 3 4 5; do echo $i; done; exit $i" >"o$i" 2>"e$i" && echo 0 >"r$i" || echo $? >"r$i" &
	done
	wait
	for i in $(seq 20); do
		is "output $i" "$(sort -u "o$i")" "$i"
		is "lines $i" "$(wc -l <"o$i")" 5
		is "status $i" "$(cat "r$i")" "$i"
	done
}

test_boxes_do_not_share_anything() {
	local a b
	a=$(box)
	b=$(box)
	den exec "$a" -- sh -c 'echo secret >/root/f; echo s >/tmp/f; echo s >/dev/shm/f'
	try den exec "$b" -- sh -c 'ls -A /root/f /tmp/f /dev/shm/f 2>/dev/null'
	want_out ""
	[ "$(den exec "$a" -- cat /etc/machine-id 2>/dev/null || echo a)" != "$(den exec "$b" -- cat /etc/machine-id 2>/dev/null || echo b)" ] ||
		fail "two boxes with one machine-id"
}

test_help_version_and_doctor_tell() {
	local v
	try den version
	want_rc 0
	want_out_has '0\.1\.0'
	try den --help
	want_rc 0
	for v in run create exec attach kill ps logs ls inspect stats cp fs stop start pause resume rm wait doctor gc version; do
		want_out_has "\\b$v\\b"
		rc=0
		"$DEN" $v --help >h || rc=$?
		is "status of $v --help" $rc 0
		[ -s h ] || fail "$v --help says nothing"
	done
	try den doctor
	want_rc 0
	want_out_has cgroup
	try den gc
	want_rc 0
}

#@ root user fresh
test_ls_of_nothing_makes_nothing() {
	try den ls
	want_rc 0
	try den ls --quiet
	want_out ""
	[ ! -e "$DEN_STATE" ] || fail "listing made a state directory"
}

#@ root user range
test_time_and_devices_are_as_a_program_expects() {
	try den run -- sh -c 'ls /dev | tr "\n" " "; echo hi >/dev/null && head -c 8 /dev/urandom | wc -c; head -c 3 /dev/zero | wc -c; echo x >/dev/full 2>/dev/null || echo full'
	want_out_has '8'
	want_out_has full
	local d
	for d in null zero full random urandom tty ptmx; do want_out_has "\\b$d\\b"; done
	try den run -- sh -c 'for f in $(find /dev); do if [ -b $f ] || [ -c $f ]; then echo $f; fi; done'
	is devices "$(sort <<<"$out" | grep -Ev '^/dev/(pts/|fd/|std)' | tr '\n' ' ')" \
		"/dev/full /dev/null /dev/ptmx /dev/random /dev/tty /dev/urandom /dev/zero "
}

#@ root timeout=90
test_apt_get_installs_inside() {
	[ -x /usr/bin/apt-get ] || skip "no apt-get on this machine"
	local b
	b=$(DEN_TEST=1 "$DEN" create --net=host-test)
	if ! timeout 50 "$DEN" exec "$b" -- sh -c 'apt-get update >/tmp/log 2>&1 && apt-get install -y --no-install-recommends hello >>/tmp/log 2>&1'; then
		den exec "$b" -- tail -5 /tmp/log >log || :
		if grep -Eq 'Temporary failure|Could not (resolve|connect)|Unable to locate' log; then
			skip "no package mirror can be reached"
		fi
		cat log
		fail "apt-get failed"
	fi
	try den exec "$b" -- hello
	want_rc 0
	want_out_has 'Hello, world'
}

# A keeper that saves or loads the programs of a large box is as deaf as one that is stopped.
#@ root user
test_a_box_whose_keeper_is_busy_can_be_looked_at() {
	local b k t
	b=$(den create --name looked-at)
	k=$(field "$b" keeper_pid)
	kill -STOP "$k"
	t=$(now_ms)
	try timeout 20 "$DEN" inspect --json looked-at
	t=$(($(now_ms) - t))
	kill -CONT "$k"
	want_rc 0
	want_out_has "\"id\":\"$b\".*\"state\":\"running\""
	at_most "ms" "$t" 10000
	is "the same one" "$(field "$b" keeper_pid)" "$k"
}
