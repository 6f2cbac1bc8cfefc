# Programs that were brought back, and then it could not be gone through with: files and memory stay of one instant.
# See src/keeper/fault.c for the faults.

source "$TESTS/kit_memory.sh"

# Behind gVisor the network of a saved box is the business of gvisor.sh.
network() {
	[ "${DEN_WALL:-container}" = gvisor ] || echo --net policy --allow example.com
}

# A program that has in memory what its file says, and notes when it finds another thing there.
careful() {
	den exec --detach "$1" -- sh -c 'i=0; echo 0 >/count; while :; do
		read c </count; [ "$c" = $i ] || echo "$c in the file, $i in memory" >>/torn
		i=$((i+1)); echo $i >/count; sleep 0.02; done' >/dev/null
	soon 5 den exec "$1" -- test -s /count
}

# whole BOX WHAT: it counts on, and never found anything else than it had written
whole() {
	local a
	a=$(den exec "$1" -- cat /count)
	soon 5 counted "$1" "${a:-0}" || fail "$2: it does not count on"
	try den exec "$1" -- cat /torn
	[ "$rc" != 0 ] || fail "$2: $out"
}

counted() {
	local b
	b=$(den exec "$1" -- cat /count)
	[ "${b:-0}" -gt "$2" ]
}

#@ root timeout=120
test_a_resume_that_fails_half_way_leaves_files_and_memory_of_one_instant() {
	local b at
	can_save
	b=$(box $(network))
	careful "$b"
	for at in load loaded met gate row; do
		timeout 60 "$DEN" pause --disk "$b" >/dev/null
		with "wait:$at,fail:$at" "$b" resume "$b"
		[ "$rc" != 0 ] || fail "$at: it went well"
		want_err_has "fault '$at'"
		is "$at: state" "$(state_of "$b")" paused
		is "$at: on disk" "$(field "$b" on_disk)" True
		is "$at: processes" "$(field "$b" init_pid)" 0
		whole "$b" "failed at $at"
	done
}

# The same, and there is no going back at once either: whoever wants the programs next does it first.
#@ root timeout=120
test_what_could_not_be_taken_back_is_taken_back_before_the_next_resume() {
	local b
	can_save
	b=$(box)
	careful "$b"
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	with "wait:row,fail:row,fail:settle" "$b" resume "$b"
	want_err_has "fault 'row'"
	[ -e "$DEN_STATE/boxes/$b/loading" ] || fail "nothing says that it is half done"
	with "fail:settle" "$b" resume "$b"
	want_err_has "fault 'settle'"
	is "on disk" "$(field "$b" on_disk)" True
	whole "$b" "taken back later"
	[ ! -e "$DEN_STATE/boxes/$b/loading" ] || fail "the mark is still there"
	# who does not want the programs may do as he likes
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	with "wait:row,fail:row,fail:settle" "$b" resume "$b"
	den rollback --disk "$b" head >/dev/null
	[ ! -e "$DEN_STATE/boxes/$b/loading" ] || fail "the mark is still there after a rollback"
	is "the file" "$(den exec "$b" -- sh -c 'test -s /count && echo there')" there
	den rm --force "$b"
}

# Whoever is put away has to end while it is held: what ran on for a moment would have written what its memory does not
# know of.
#@ root timeout=120
test_nothing_runs_between_the_images_and_the_end() {
	local b i
	can_save
	b=$(box)
	den exec --detach "$b" -- sh -c 'i=0; echo 0 >/count; while :; do
		read c </count; [ "$c" = $i ] || echo "$c in the file, $i in memory" >>/torn
		i=$((i+1)); echo $i >/count; done' >/dev/null
	soon 5 den exec "$b" -- test -s /count
	den exec --detach "$b" -- sh -c 'i=0; while [ $i -lt 40 ]; do sleep 1000 & i=$((i+1)); done; wait' >/dev/null
	for i in 1 2 3 4 5; do
		timeout 60 "$DEN" pause --disk "$b" >/dev/null
		whole "$b" "pause $i"
	done
}

#@ root timeout=200
test_a_keeper_killed_at_each_step_of_a_resume_leaves_one_instant() {
	local b at patience
	can_save
	b=$(box $(network))
	careful "$b"
	for at in load loaded met gate row saved; do
		timeout 60 "$DEN" pause --disk "$b" >/dev/null
		with "wait:$at,kill:$at" "$b" resume "$b"
		whole "$b" "killed at $at"
		[ ! -e "$DEN_STATE/boxes/$b/loading" ] || fail "$at: the mark is still there"
	done
	# in the middle of taking it back; each keeper that comes after it dies of the same
	patience=3
	for at in settle restored; do
		timeout 60 "$DEN" pause --disk "$b" >/dev/null
		with "wait:met,fail:met,kill:$at" "$b" resume "$b"
		whole "$b" "killed at $at"
	done
}

#@ root timeout=120
test_a_rollback_that_fails_half_way_can_be_gone_on_with() {
	local b c at
	can_save
	b=$(box)
	careful "$b"
	c=$(full "$b")
	for at in fail:met fail:row kill:restored kill:met kill:row; do
		with "wait:${at#*:},$at" "$b" rollback "$b" "$c"
		is_state "$b" paused || is_state "$b" running || fail "$at: it is $(state_of "$b")"
		whole "$b" "$at"
	done
}

#@ root timeout=120
test_a_fork_that_fails_half_way_is_not_there() {
	local b at
	can_save
	b=$(box)
	careful "$b"
	for at in fail:loaded fail:met fail:gate kill:loaded kill:met; do
		try env DEN_TEST="wait:${at#*:},$at" timeout 60 "$DEN" fork --full "$b"
		[ "$rc" != 0 ] || fail "$at: it went well"
		soon 8 alone_here "$b" || fail "$at: $(boxes)"
		whole "$b" "$at"
	done
}

work_of() {
	python3 -c 'import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("SELECT work FROM boxes WHERE id = ?", sys.argv[2:]).fetchone()[0])' \
		"$DEN_STATE/den.db" "$1"
}

# The host lost its power: what was written between the last sync and then need not be there, but the checkpoint is.
#@ root
test_after_a_start_of_the_host_files_come_from_the_checkpoint() {
	local b dir work
	can_save
	b=$(box)
	careful "$b"
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	drop_keeper "$b"
	sleep 1 # it is sealed
	dir=$(ls -d "$DEN_STATE/memory/$b"/[0-9]*)
	python3 - "$dir/manifest" <<-'END'
		import hashlib, re, sys
		text = open(sys.argv[1]).read()
		text = re.sub(r"(?m)^boot .*$", "boot 00000000-0000-0000-0000-000000000000", text[:text.rindex("\nend ") + 1])
		open(sys.argv[1], "w").write(text + "end %s\n" % hashlib.sha256(text.encode()).hexdigest())
	END
	work=$(work_of "$b")
	den resume "$b"
	whole "$b" "after a start of the host"
	is "its files" "$(work_of "$b")" $((work + 1))
}

# older BOX: its checkpoints are, by two minutes
older() {
	python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=20)
db.execute("UPDATE checkpoints SET created_ms = created_ms - 120000 WHERE box = ?", sys.argv[2:])
db.commit()' "$DEN_STATE/den.db" "$1"
}

images_are() {
	[ "$(den log --json "$1" | grep -o '"full":true' | wc -l)" = "$2" ] && [ "$(ls "$DEN_STATE/memory/$1" | grep -c '^[0-9]')" = "$2" ]
}

# Images that a fork needed only for a moment are dropped when they are a minute old: not while forks are made of them.
#@ root timeout=120
test_images_stay_while_forks_are_made_of_them() {
	local b n i
	can_save
	b=$(box)
	careful "$b"
	DEN_TEST=wait:load "$DEN" fork --full --count 5 "$b" >made 2>said &
	n=$!
	soon 20 test -s made
	for i in 1 2; do
		older "$b"
		full "$b" >/dev/null
		den prune --all "$b" >/dev/null
	done
	wait "$n" || fail "it did not make them all: $(cat made said)"
	is forks "$(wc -l <made)" 5
	# and not for ever: those of the one that was asked for are left
	soon 10 images_are "$b" 1 || fail "$(ls "$DEN_STATE/memory/$b"; den log "$b")"
}

# A file that is open by a name which it lost, and has another one: what names are there, and does it work?
two_names() {
	den exec --detach "$1" -- python3 -c 'import os, time
os.makedirs("/root/d")
f = open("/root/d/first", "w+")
os.link("/root/d/first", "/root/d/second")
os.unlink("/root/d/first")
open("/root/d/link_remap.7", "w").write("of the user")
open("/root/ready", "w")
while True:
    f.write("x")
    f.flush()
    time.sleep(0.02)' >/dev/null
	soon 5 den exec "$1" -- test -e /root/ready
}

names_are() {
	is "$2: names" "$(den exec "$1" -- sh -c 'ls -A /root/d | tr "\n" " "; cat /root/d/link_remap.7')" \
		"link_remap.7 second of the user"
	soon 5 grows "$1" || fail "$2: it is not written to"
}

grows() {
	den exec "$1" -- sh -c 'a=$(stat -c %s /root/d/second); sleep 0.1; test "$(stat -c %s /root/d/second)" -gt "$a"'
}

# Saving gives such a file one more name; it goes, whatever becomes of the pause.
#@ root timeout=120
test_no_name_that_saving_made_stays_in_the_files() {
	local b
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "it is about CRIU"
	b=$(box)
	two_names "$b"
	full "$b" >/dev/null
	names_are "$b" "after a checkpoint"
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	names_are "$b" "after a pause"
	with "fail:pause" "$b" pause --disk "$b"
	want_err_has "fault 'pause'"
	names_are "$b" "after a pause that failed"
	with "kill:pause" "$b" pause --disk "$b"
	names_are "$b" "after a pause whose keeper was killed"
	with "kill:paused" "$b" pause --disk "$b"
	names_are "$b" "after a pause whose keeper was killed when it was written down"
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	names_are "$b" "after one more pause"
}

# left_by BOX VERB...: whoever asks for it is interrupted while nothing of the box runs
left_by() {
	local b=$1 pid
	shift
	drop_keeper "$b"
	DEN_TEST=wait:frozen "$DEN" "$@" >/dev/null 2>&1 &
	pid=$!
	soon 5 being_saved "$b" || fail "$*: nothing is saved"
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || :
}

being_saved() {
	ls "$DEN_STATE/memory/$1"/.[0-9]*/pstree.img >/dev/null 2>&1
}

nothing_saved() {
	[ -z "$(ls -A "$DEN_STATE/memory/$1" 2>/dev/null)" ]
}

# Who is interrupted has not got what he asked for, and the box goes on at once.
#@ root
test_a_save_that_nobody_waits_for_any_more_is_given_up() {
	local b verb
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "the images are CRIU's"
	b=$(box)
	careful "$b"
	for verb in "pause --disk" "checkpoint --full" "fork --full"; do
		# shellcheck disable=SC2086
		left_by "$b" $verb "$b"
		soon 5 nothing_saved "$b" || fail "$verb: it is still there: $(ls -A "$DEN_STATE/memory/$b")"
		is "$verb: state" "$(state_of "$b")" running
		is "$verb: on disk" "$(field "$b" on_disk)" False
		whole "$b" "$verb"
		not grep '"memory":[1-9]' <<<"$(den log --json "$b")"
		is "$verb: boxes" "$(boxes)" "$b"
	done
	drop_keeper "$b"
}
