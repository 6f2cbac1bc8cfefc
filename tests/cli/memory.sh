# Programs on disk: full checkpoints, pausing, forks with programs; and what becomes of them in accidents.

# A program that counts, in the box: its file says how far it is.
counter() {
	den exec --detach "$1" -- sh -c 'i=0; while :; do i=$((i+1)); echo $i >/count; sleep 0.05; done' >/dev/null
	soon 5 counts "$1"
}

# It may be looked at just when it is written: then there is nothing in it.
count_of() {
	"$DEN" exec "$1" -- sh -c 'i=0; until read -r c </count && [ "$c" ]; do i=$((i+1)); [ $i -lt 100 ] || exit 1; done; echo $c' 2>/dev/null
}

# Does it count on?
counts() {
	local a b i
	a=$(count_of "$1") || return 1
	for i in 1 2 3 4 5 6; do
		sleep 0.2
		b=$(count_of "$1") || return 1
		[ "$b" -le "$a" ] || return 0
	done
	return 1
}

pids_of() {
	"$DEN" ps --json "$1" | python3 -c 'import json,sys; print(" ".join(str(p["pid"]) for p in json.load(sys.stdin)["processes"]))'
}

kill_keeper() {
	local pid
	pid=$(field "$1" keeper_pid)
	kill -9 "$pid"
	soon 5 dead "$pid"
}

#@ root
test_a_full_checkpoint_leaves_programs_and_streams_alone() {
	local b n
	b=$(box)
	"$DEN" exec "$b" -- sh -c 'i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done' >"$TMP/out" 2>"$TMP/err" &
	n=$!
	sleep 0.5
	try den checkpoint --full --json -m here "$b"
	want_rc 0
	want_out_has '"full":true'
	want_out_has '"frozen_us":'
	wait "$n" || fail "the program did not end well: $(cat "$TMP/err")"
	is "all lines, once each" "$(md5sum <"$TMP/out")" "$(seq 0 39 | md5sum)"
	den log --json "$b" | grep -q '"full":true' || fail "the log does not say that it is full"
}

#@ root
test_a_box_on_disk_has_no_process_and_comes_back_as_it_was() {
	local b init before after boot
	b=$(box)
	counter "$b"
	init=$(field "$b" init_pid)
	before=$(count_of "$b")
	boot=$(field "$b" boot_id)
	den pause --disk "$b" >/dev/null
	is state "$(state_of "$b")" paused
	is "on disk" "$(field "$b" on_disk)" True
	soon 5 dead "$init" || fail "its init is still there"
	[ -z "$(ls -d /sys/fs/cgroup/*/den*/*"$b"* /sys/fs/cgroup/den*/*"$b"* 2>/dev/null)" ] || fail "its cgroup is still there"
	den ls | grep "$b" | grep -q "on disk" || fail "ls does not tell: $(den ls)"
	is "memory" "$(den stats --once --json "$b" | grep -o '"memory":[0-9]*')" '"memory":0'
	den resume "$b"
	is state "$(state_of "$b")" running
	is "boot id" "$(field "$b" boot_id)" "$boot"
	counts "$b" || fail "it does not count on"
	after=$(count_of "$b")
	[ "$after" -gt "$before" ] || fail "it began anew: $after after $before"
	is generation "$(den exec "$b" -- cat /run/den/generation)" 1
}

#@ root
test_who_follows_a_program_follows_it_across_a_pause_on_disk() {
	local b n
	b=$(box)
	"$DEN" exec "$b" -- sh -c 'i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done' >"$TMP/out" 2>"$TMP/err" &
	n=$!
	sleep 0.4
	den pause --disk "$b" >/dev/null
	sleep 1
	alive "$n" || fail "the client left: $(cat "$TMP/err")"
	den resume "$b"
	wait "$n" || fail "the program did not end well: $(cat "$TMP/err")"
	is "all lines, once each" "$(md5sum <"$TMP/out")" "$(seq 0 39 | md5sum)"
}

#@ root
test_input_reaches_a_program_across_a_pause_on_disk() {
	local b
	b=$(box)
	mkfifo "$TMP/in"
	"$DEN" exec "$b" -- cat <"$TMP/in" >"$TMP/out" &
	local n=$!
	exec 7>"$TMP/in"
	echo one >&7
	soon 5 grep -q one "$TMP/out"
	den pause --disk "$b" >/dev/null
	echo two >&7 # brings it back
	soon 10 grep -q two "$TMP/out" || fail "what was written did not arrive: $(cat "$TMP/out")"
	is state "$(state_of "$b")" running
	exec 7>&-
	wait "$n" || fail "cat did not end well"
}

#@ root
test_any_use_of_a_box_on_disk_brings_it_back() {
	local b
	b=$(box)
	counter "$b"
	den pause --disk "$b" >/dev/null
	counts "$b" || fail "an exec did not bring it back"
	den pause --disk "$b" >/dev/null
	den fs ls "$b" / >/dev/null
	is "after a file operation" "$(state_of "$b")" running
	counts "$b" || fail "its programs did not come back"
	# who only looks does not
	den pause --disk "$b" >/dev/null
	den log "$b" >/dev/null
	den inspect "$b" >/dev/null
	is "after a look" "$(state_of "$b")" paused
	is "how often" "$(field "$b" restores)" 2
}

#@ root
test_a_program_whose_client_is_gone_can_be_attached_to() {
	local b n
	b=$(box)
	"$DEN" exec --tag job "$b" -- sh -c 'while :; do echo tick; sleep 0.1; done' >/dev/null 2>&1 &
	n=$!
	soon 5 sh -c "'$DEN' ps '$b' | grep -q job"
	den pause --disk "$b" >/dev/null
	kill -9 "$n"
	wait "$n" 2>/dev/null || :
	den resume "$b"
	sleep 1
	timeout 2 "$DEN" attach "$b" job >"$TMP/out" 2>&1 </dev/null || :
	grep -q tick "$TMP/out" || fail "it cannot be attached to: $(cat "$TMP/out")"
}

#@ root
test_a_fork_with_programs_goes_its_own_way_and_the_original_goes_on() {
	local b f n
	b=$(box --name origin)
	counter "$b"
	"$DEN" exec "$b" -- sh -c 'i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done' >"$TMP/out" 2>"$TMP/err" &
	n=$!
	sleep 0.3
	f=$(den fork --full --name copy "$b")
	wait "$n" || fail "the original lost a stream: $(cat "$TMP/err")"
	is "the original's lines" "$(md5sum <"$TMP/out")" "$(seq 0 39 | md5sum)"
	counts "$b" || fail "the original does not go on"
	counts "$f" || fail "the copy does not go on"
	[ "$(field "$f" boot_id)" != "$(field "$b" boot_id)" ] || fail "same boot id"
	[ "$(den exec "$f" -- cat /etc/machine-id)" != "$(den exec "$b" -- cat /etc/machine-id)" ] || fail "same machine-id"
	is "host name" "$(den exec "$f" -- hostname)" copy
	is generation "$(den exec "$f" -- cat /run/den/generation)" 1
	# what one writes the other does not see
	den exec "$f" -- sh -c 'echo mine >/own'
	try den exec "$b" -- cat /own
	[ "$rc" != 0 ] || fail "the original sees the copy's file"
}

no_images() {
	! den log --json "$1" | grep -q '"full":true'
}

#@ root
test_many_forks_are_of_one_instant() {
	local b all c
	b=$(box)
	den exec --detach "$b" -- sh -c 'x=$(cat /proc/sys/kernel/random/uuid); while :; do echo $x >/seen; sleep 0.05; done' >/dev/null
	soon 5 den exec "$b" -- test -s /seen
	all=$(den fork --full --count 3 "$b")
	is "how many" "$(echo "$all" | wc -l)" 3
	for c in $all; do
		den exec "$c" -- rm -f /seen
		soon 5 den exec "$c" -- test -s /seen || fail "no program in $c"
		is "what it holds" "$(den exec "$c" -- cat /seen)" "$(den exec "$b" -- cat /seen)"
	done
	is "checkpoints that they are of" "$(for c in $all; do den log --json "$c" | grep -o "$b@[0-9]*" | head -1; done | sort -u | wc -l)" 1
	# what was made for them alone goes with who asked for them
	soon 10 no_images "$b" || fail "images for forks are still there"
	is "directories of images" "$(ls "$DEN_STATE/memory/$b" 2>/dev/null | wc -l)" 0
}

#@ root
test_a_rollback_to_a_full_checkpoint_brings_programs_back() {
	local b at
	b=$(box)
	counter "$b"
	at=$(den checkpoint --full "$b")
	den exec "$b" -- sh -c 'kill -9 -1; :' >/dev/null 2>&1 || :
	sleep 0.3
	if counts "$b"; then fail "it should have been killed"; fi
	den exec "$b" -- sh -c 'echo later >/later'
	den rollback "$b" "$at" >/dev/null
	counts "$b" || fail "the program did not come back"
	try den exec "$b" -- cat /later
	[ "$rc" != 0 ] || fail "a file from after is there"
	# files alone
	den rollback --disk "$b" "$at" >/dev/null
	if counts "$b"; then fail "--disk brought programs back"; fi
}

#@ root
test_a_pause_on_disk_survives_every_keeper() {
	local b
	b=$(box)
	counter "$b"
	den pause --disk "$b" >/dev/null
	den inspect "$b" >/dev/null # a keeper for a moment
	den gc >/dev/null
	is state "$(state_of "$b")" paused
	den resume "$b"
	kill_keeper "$b"
	counts "$b" || fail "it does not go on after its keeper was killed"
}

#@ root
test_generations_of_restores_and_forks_of_forks() {
	local b f i
	b=$(box)
	counter "$b"
	for i in 1 2 3 4 5; do
		den pause --disk "$b" >/dev/null
		den resume "$b"
	done
	counts "$b" || fail "after five restores it does not count"
	is generation "$(den exec "$b" -- cat /run/den/generation)" 5
	f=$(den fork --full "$b")
	f=$(den fork --full "$f")
	f=$(den fork --full "$f")
	counts "$f" || fail "a fork of a fork of a fork does not count"
	is generation "$(den exec "$f" -- cat /run/den/generation)" 8
}

#@ root
test_a_keeper_that_is_killed_while_it_saves_loses_nothing() {
	local b i
	b=$(box)
	counter "$b"
	for i in 1 2 3 4 5 6; do
		local keeper
		keeper=$(field "$b" keeper_pid)
		"$DEN" pause --disk "$b" >/dev/null 2>&1 &
		local n=$!
		sleep "0.0$((i * 2 - 1))"
		kill -9 "$keeper" 2>/dev/null || :
		wait "$n" || :
		# whatever came of it, the box is there with its programs
		counts "$b" || fail "round $i: it does not count on: $(den inspect "$b")"
	done
}

#@ root
test_a_keeper_that_is_killed_while_it_loads_loses_nothing() {
	local b i
	b=$(box)
	counter "$b"
	for i in 1 2 3 4 5 6; do
		local keeper n
		den pause --disk "$b" >/dev/null
		soon 5 nobody_keeps "$b"
		"$DEN" resume "$b" >/dev/null 2>&1 &
		n=$!
		sleep "0.0$((i + 1))"
		keeper=$(holder_of "$b")
		[ -z "$keeper" ] || kill -9 "$keeper" 2>/dev/null || :
		wait "$n" || :
		counts "$b" || fail "round $i: it does not count on: $(den inspect "$b")"
	done
}

#@ root
test_damaged_or_foreign_images_are_refused_with_the_reason() {
	local b dir big
	b=$(box)
	counter "$b"
	den pause --disk "$b" >/dev/null
	sleep 1 # it is sealed
	dir=$(ls -d "$DEN_STATE/memory/$b"/[0-9]*)
	cp "$dir/manifest" "$TMP/manifest"
	sed -i 's/^kernel [0-9]*/kernel 1/' "$dir/manifest"
	try den resume "$b"
	want_rc_not_0
	want_err_has "damaged"
	cp "$TMP/manifest" "$dir/manifest"
	big=$(ls -S "$dir" | grep -v manifest | head -1)
	printf '\377\376\375' | dd of="$dir/$big" bs=1 seek=100 conv=notrunc status=none
	try den resume "$b"
	want_rc_not_0
	want_err_has "damaged"
	is "it stays on disk" "$(field "$b" on_disk)" True
	# without its programs it can still be had
	den rollback --disk "$b" head >/dev/null
	is "its file" "$(den exec "$b" -- sh -c 'test -s /count && echo there')" there
}

want_rc_not_0() {
	[ "$rc" != 0 ] || fail "went well: $out"
}

#@ root user range
test_hibernating_keeps_files_and_starts_anew() {
	local b boot
	b=$(box)
	den exec "$b" -- sh -c 'echo kept >/kept'
	boot=$(field "$b" boot_id)
	den exec --detach "$b" -- sleep 1000 >/dev/null
	den hibernate "$b"
	is state "$(state_of "$b")" paused
	is hibernated "$(field "$b" hibernated)" True
	is init "$(field "$b" init_pid)" 0
	is "the file" "$(den exec "$b" -- cat /kept)" kept
	[ "$(field "$b" boot_id)" != "$boot" ] || fail "the same boot id"
	not den exec "$b" -- pgrep sleep >/dev/null || fail "a program is still there"
	den hibernate "$b"
	den resume "$b"
	is state "$(state_of "$b")" running
}

#@ user range
test_who_cannot_save_programs_is_told_why() {
	local b
	b=$(box)
	for verb in "checkpoint --full" "pause --disk" "fork --full"; do
		# shellcheck disable=SC2086
		try den $verb "$b"
		want_rc_not_0
		want_err_has "root"
	done
	is "it goes on" "$(den exec "$b" -- echo yes)" yes
	try den create --idle-pause 5m
	want_rc_not_0
}

#@ root
test_an_idle_box_goes_to_disk_and_comes_back_when_used() {
	local b
	b=$(box --idle-pause 1s)
	is action "$(field "$b" on_idle)" pause-disk
	den exec "$b" -- sh -c 'echo kept >/dev/shm/kept; sleep 1000 </dev/null >/dev/null 2>&1 &'
	soon 10 is_state "$b" paused || fail "still running"
	is "on disk" "$(field "$b" on_disk)" True
	is reason "$(field "$b" reason)" "it was idle"
	is "what is in memory" "$(den exec "$b" -- cat /dev/shm/kept)" kept
	# what uses the processor is not idle
	den exec --detach "$b" -- sh -c 'while :; do :; done' >/dev/null
	sleep 3
	is "a busy one" "$(state_of "$b")" running
}

#@ root
test_a_template_with_programs_begins_where_they_were() {
	local b a c
	b=$(box)
	counter "$b"
	den template bake warm --from "$b" --full
	den rm --force "$b"
	den template ls | grep -q warm || fail "not listed"
	a=$(den create --template warm)
	c=$(den create --template warm --env HELLO=you --name mine)
	counts "$a" || fail "no program in the first"
	counts "$c" || fail "no program in the second"
	is "environment" "$(den exec "$c" -- sh -c 'echo $HELLO')" you
	is "boxes that are listed" "$(boxes | wc -l)" 2
	den template rm warm
	try den create --template warm
	want_rc_not_0
	counts "$a" || fail "it went with its template"
}

#@ root
test_a_template_with_programs_keeps_its_name_and_says_what_it_cannot_change() {
	local b f
	b=$(box)
	den template bake warm --from "$b" --full
	f=$(box)
	try den template create warm --from "$f" # boxes would still be made of the programs
	want_rc_not_0
	want_err_has "template rm"
	den template create other --from "$f" >/dev/null
	try den template tag other warm
	want_rc_not_0
	try den create --template warm --publish 8000
	want_rc_not_0
	f=$(den create --template warm --hostname changed)
	is "host name" "$(den exec "$f" -- hostname)" changed
	den policy set "$b" --allow example.com >/dev/null
	den template bake online --from "$b" --full
	try den create --template online --net none
	want_rc_not_0
	want_err_has "network"
	den rm --force "$f"
	# whoever made it may not have left yet
	flock "$DEN_STATE/boxes/$(readlink "$DEN_STATE/baked/warm")" sleep 0.5 &
	sleep 0.1
	den template rm warm
	den template rm online
}

#@ root
test_images_go_with_their_checkpoint_and_their_box() {
	local b n
	b=$(box)
	counter "$b"
	n=$(den checkpoint --full "$b")
	[ -d "$DEN_STATE/memory/$b/$n" ] || fail "no images"
	sleep 1.5
	den checkpoint "$b" >/dev/null
	den prune --all "$b" >/dev/null
	[ ! -d "$DEN_STATE/memory/$b/$n" ] || fail "images without their checkpoint"
	den pause --disk "$b" >/dev/null
	try den rm "$b"
	want_rc_not_0 # there are programs to lose
	sleep 0.5
	den rm --force "$b"
	soon 5 not test -e "$DEN_STATE/memory/$b" || fail "images without their box: $(find "$DEN_STATE/memory")"
}

#@ root
test_stopping_a_box_on_disk_lets_its_programs_go() {
	local b
	b=$(box)
	counter "$b"
	den pause --disk "$b" >/dev/null
	den stop "$b"
	is state "$(state_of "$b")" stopped
	den start "$b"
	if counts "$b"; then fail "they came back"; fi
}

#@ root
test_the_boxs_own_hook_is_run_after_a_restore() {
	local b f
	b=$(box)
	den exec "$b" -- sh -c 'mkdir -p /etc/den; printf "#!/bin/sh\necho \$DEN_GENERATION >>/told\n" >/etc/den/restored; chmod +x /etc/den/restored'
	den pause --disk "$b" >/dev/null
	den resume "$b"
	soon 5 den exec "$b" -- test -s /told
	is "the first time" "$(den exec "$b" -- cat /told)" 1
	f=$(den fork --full "$b")
	soon 5 den exec "$f" -- grep -qx 2 /told || fail "not told in the fork"
	not den exec "$b" -- grep -qx 2 /told || fail "told in the original"
}

# What could be saved but not loaded again is refused, and the box goes on.
#@ root
test_what_could_not_be_loaded_again_is_not_saved() {
	local b
	b=$(box)
	den exec "$b" -- python3 -c 'import os
os.chdir("/dev/shm")
for i in range(30):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)'
	counter "$b"
	try den pause --disk "$b"
	want_rc 2
	want_err_has "name too long"
	counts "$b" || fail "it does not count any more"
	den exec "$b" -- sh -c 'rm -r /dev/shm/d*'
	den exec --detach "$b" -- python3 -c 'import ctypes, signal, struct
# anything but pause() kills
code = b"".join(struct.pack("HBBI", *i) for i in ((0x20, 0, 0, 0), (0x15, 0, 1, 34), (6, 0, 0, 0x7fff0000), (6, 0, 0, 0x80000000)))
text = ctypes.create_string_buffer(code)
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(text)))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
open("/own", "w").close()
libc.prctl(22, 2, prog, 0, 0)
libc.pause()' >/dev/null
	soon 5 "$DEN" exec "$b" -- test -e /own
	sleep 0.2
	try den pause --disk "$b"
	want_rc 8
	want_err_has "seccomp filter of its own"
	counts "$b" || fail "it does not count any more"
}

#@ root
test_a_box_with_all_its_processes_is_loaded_within_its_limit() {
	local b
	b=$(box --pids 10)
	den exec --detach "$b" -- sh -c 'for i in 1 2 3 4 5 6 7; do sleep 1000 & done; wait' >/dev/null
	sleep 0.3
	try den pause --disk "$b"
	want_rc 0
	try den resume "$b"
	want_rc 0
	try den exec "$b" -- sh -c 'sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait'
	# its own kernel refuses, and only the program can tell
	want_err_has "$([ "${DEN_WALL:-}" = gvisor ] && echo fork || echo 'limit of processes')"
}

is_paused() {
	[ "$(state_of "$1")" = paused ]
}

is_on_disk() {
	[ "$(field "$1" on_disk)" = True ]
}

# Else a program could make its box live for ever.
#@ root
test_a_box_that_cannot_go_to_disk_when_its_time_is_up_is_held_in_memory() {
	local b gvisor
	gvisor=$([ "${DEN_WALL:-}" = gvisor ] && echo True || echo False)
	b=$(box --ttl $([ $gvisor = True ] && echo 5s || echo 2s) --on-expire pause-disk)
	den exec --detach "$b" -- python3 -c 'import ctypes, os, time
if '$gvisor': # what has no name any more
    f = open("/root/f", "w")
    os.unlink("/root/f")
    time.sleep(1000)
pid = os.fork()
if not pid:
    time.sleep(1000)
ctypes.CDLL(None).ptrace(16, pid, 0, 0)
time.sleep(1000)' >/dev/null
	soon 10 is_paused "$b" || fail "it lives on: $(field "$b" state)"
	not is_on_disk "$b" || fail "it is on disk"
}

# Such a process cannot be stopped by anything: CRIU would try for ten seconds.
#@ root
test_who_waits_for_a_child_of_vfork_is_told_of_at_once() {
	local b began
	[ "${DEN_WALL:-container}" = container ] || skip "another kernel: it can be stopped there"
	can_save
	b=$(box)
	counter "$b"
	# others that wait, each for a moment, do not hide it
	den exec --detach "$b" -- sh -c 'while :; do /bin/true; done' >/dev/null
	den exec --detach "$b" -- python3 -c 'import ctypes, time
libc = ctypes.CDLL(None)
open("/begun", "w").close()
if libc.syscall(58) == 0:
    libc.pause()' >/dev/null
	soon 5 den exec "$b" -- test -e /begun
	sleep 0.5
	began=$(now_ms)
	try den checkpoint --full "$b"
	want_rc 8
	want_err_has "vfork"
	at_most "milliseconds" $(($(now_ms) - began)) $((3000 * ${DEN_TEST_SLOW:-1}))
	counts "$b" || fail "it does not count any more"
	# one that is over in a moment is waited for
	den exec "$b" -- pkill -9 python3
	den exec --detach "$b" -- sh -c 'while :; do /bin/true; done' >/dev/null
	try den checkpoint --full "$b"
	want_rc 0
}

#@ root
test_a_full_checkpoint_of_a_box_on_disk_is_the_one_that_it_has() {
	local b n m
	b=$(box)
	counter "$b"
	den pause --disk --json "$b" >"$TMP/paused"
	m=$(grep -o '"memory":[0-9]*' "$TMP/paused")
	n=$(grep -o '"number":[0-9]*' "$TMP/paused")
	try den checkpoint --full --json "$b"
	want_rc 0
	want_out_has "$n"
	want_out_has "$m"
	[ "$m" != '"memory":0' ] || fail "it says that nothing was saved"
}

# Images of a newer CRIU are not given to an older one.
#@ root
test_images_of_a_newer_runtime_are_refused() {
	local b dir
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "runsc itself refuses what it cannot read"
	b=$(box)
	counter "$b"
	den pause --disk "$b" >/dev/null
	sleep 1
	dir=$(ls -d "$DEN_STATE/memory/$b"/[0-9]*)
	for v in "criu 99.0" "criu 4.2"; do
		python3 - "$dir/manifest" "$v" <<-'END'
			import hashlib, re, sys
			text = open(sys.argv[1]).read()
			text = re.sub(r"(?m)^runtime .*$", "runtime " + sys.argv[2], text[:text.rindex("\nend ") + 1])
			open(sys.argv[1], "w").write(text + "end %s\n" % hashlib.sha256(text.encode()).hexdigest())
		END
		[ "$v" = "criu 99.0" ] || break
		try den resume "$b"
		want_rc_not_0
		want_err_has "criu 99.0"
		is "on disk" "$(field "$b" on_disk)" True
	done
	counts "$b" || fail "an older one's are not loaded"
}
