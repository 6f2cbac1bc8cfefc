# Programs on disk where there is no room for them, or nothing may be written: nothing is lost, and it is told why.

source "$TESTS/kit_memory.sh"

# small: a state directory on a file system of its own, which fill() fills
small() {
	mkdir full
	mount -t tmpfs -o size=250m tmpfs full
	trap 'umount -l "$TMP/full"; finish' EXIT
	export DEN_STATE=$PWD/full/state
}

fill() {
	sleep 1.5 # images are compressed, and make room
	head -c 300m /dev/urandom >>full/ballast 2>/dev/null || :
}

empty() {
	rm full/ballast
}

# A program with 12 MB of its own, which counts in memory alone, and a file that no copy has room for.
heavy() {
	den exec "$1" -- sh -c 'head -c 3m /dev/urandom >/root/large'
	den exec --detach "$1" -- python3 -c 'import os, time
x = os.urandom(12 << 20)
i = 0
while True:
    i += 1
    with open("/dev/shm/new", "w") as f:
        f.write(str(i))
    os.rename("/dev/shm/new", "/dev/shm/count")
    time.sleep(0.05)' >/dev/null
	soon 20 counts_past "$1" 0
}

counts_past() {
	local n
	n=$("$DEN" exec "$1" -- cat /dev/shm/count 2>/dev/null) && [ "$n" -gt "$2" ]
}

# goes_on BOX WHAT: its program was not interrupted for good, and did not begin anew
goes_on() {
	soon 10 counts_past "$1" "$last" || fail "$2: it does not go on: $(state_of "$1"), $(den exec "$1" -- cat /dev/shm/count 2>&1) after $last"
	last=$(den exec "$1" -- cat /dev/shm/count)
}

#@ root timeout=200
test_without_room_nothing_is_saved_and_nothing_is_lost() {
	local b c last=0 verb
	can_save
	small
	b=$(box)
	heavy "$b"
	c=$(full "$b")
	goes_on "$b" "at first"
	for verb in "checkpoint --full" "pause --disk" "fork --full"; do
		fill
		# shellcheck disable=SC2086
		try timeout 60 "$DEN" $verb "$b"
		want_rc 6
		want_err_has "No space left on device"
		is "$verb: what is left of it" "$(ls -A "$DEN_STATE/memory/$b")" "$c"
		is boxes "$(boxes)" "$b"
		goes_on "$b" "$verb"
	done
	fill
	try timeout 60 "$DEN" rollback "$b" "$c"
	want_rc 6
	want_err_has "No space left on device"
	goes_on "$b" rollback
	empty
	den pause --disk "$b" >/dev/null
	fill
	try timeout 60 "$DEN" resume "$b"
	want_rc 6
	want_err_has "No space left on device"
	is "on disk" "$(field "$b" on_disk)" True
	for verb in "rollback" "rollback --disk"; do
		fill
		# shellcheck disable=SC2086
		try timeout 60 "$DEN" $verb "$b" "$c"
		[ "$rc" != 0 ] || fail "$verb: it went well"
		is "$verb: on disk" "$(field "$b" on_disk)" True
	done
	empty
	goes_on "$b" "when there was room again"
	fill
	den rm --force "$b"
	empty
}

# What cannot be saved is told with names that the box chose; they are not taken for what the kernel says.
#@ root
test_a_name_is_not_taken_for_a_full_disk() {
	local b
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "it is about what CRIU says"
	b=$(box)
	den exec --detach "$b" -- python3 -c 'import os, time
f = open("/root/large: No space left on device", "w")
os.posix_fallocate(f.fileno(), 0, 260 << 20)
os.unlink(f.name)
open("/root/ready", "w")
time.sleep(1000)' >/dev/null
	soon 10 den exec "$b" -- test -e /root/ready
	try timeout 60 "$DEN" checkpoint --full "$b"
	want_err_has "large: No space left on device"
	want_rc 8
}

#@ root timeout=200
test_what_must_not_be_written_is_not_written_and_the_box_goes_on() {
	local b last=0 verb
	can_save
	small
	b=$(box)
	heavy "$b"
	goes_on "$b" "at first"
	if ! mount -o remount,ro full 2>/dev/null; then
		den rm --force "$b"
		skip "a file system in use cannot be made read-only here"
	fi
	for verb in "checkpoint --full" "pause --disk" "fork --full"; do
		# shellcheck disable=SC2086
		try timeout 60 "$DEN" $verb "$b"
		[ "$rc" != 0 ] && [ "$rc" != 124 ] || fail "$verb: $rc"
		want_err_has "ead-only"
	done
	mount -o remount,rw full
	goes_on "$b" "read-only"
	den pause --disk "$b" >/dev/null
	goes_on "$b" "afterwards"
	den rm --force "$b"
}

#@ root timeout=120
test_a_keeper_without_descriptors_saves_nothing_and_loses_nothing() {
	local b last=0 k n verb more
	can_save
	b=$(box)
	heavy "$b"
	goes_on "$b" "at first"
	k=$(field "$b" keeper_pid)
	n=$(ls "/proc/$k/fd" | wc -l)
	for more in 2 9 30 66 70 80; do
		prlimit --pid "$k" --nofile=$((n + more)):
		for verb in "checkpoint --full" "pause --disk"; do
			# shellcheck disable=SC2086
			try timeout 60 "$DEN" $verb "$b"
			[ "$rc" != 124 ] || fail "$verb hangs with $more descriptors"
			[ "$rc" = 0 ] || grep -q "oo many open files" <<<"$err" || fail "$verb with $more descriptors: $rc $err"
		done
		prlimit --pid "$k" --nofile=1024: 2>/dev/null || :
		goes_on "$b" "with $more descriptors"
		k=$(field "$b" keeper_pid)
	done
}
