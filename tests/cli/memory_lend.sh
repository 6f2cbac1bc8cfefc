# The memory of a single fork is read from the box itself, which is held meanwhile: see src/keeper/lend.c.

source "$TESTS/kit_memory.sh"

can_lend() {
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "runsc saves all memory itself"
}

# A program that is writing to all of its 64 MB all the time, and notes when a page is not of the pass that it should be of.
# What is read while it runs has pages of two passes.
writer() {
	den exec --detach "$1" -- /usr/bin/python3 -c '
n, i = 64 << 20, 0
m = bytearray(n)
while True:
    i = i % 250 + 1
    m[::4096] = bytes([i]) * (n // 4096)
    if m[::4096] != bytes([i]) * (n // 4096):
        open("/torn", "a").write(f"pass {i}\n")
    open("/passes", "a").write(".")' >/dev/null
	soon 10 den exec "$1" -- test -s /passes
}

passes() {
	den exec "$1" -- sh -c 'wc -c </passes'
}

# more_than BOX N
more_than() {
	local n
	n=$(passes "$1")
	[ "${n:-0}" -gt "$2" ]
}

# goes_on BOX WHAT
goes_on() {
	local a
	a=$(passes "$1")
	soon 10 more_than "$1" $((${a:-0} + 3)) || fail "$2: it does not go on"
	try den exec "$1" -- cat /torn
	[ "$rc" != 0 ] || fail "$2: memory of several instants: $out"
}

#@ root timeout=120
test_memory_of_a_single_fork_is_of_one_instant() {
	local b f i
	can_lend
	b=$(box)
	writer "$b"
	for i in 1 2 3 4 5; do
		f=$(timeout 60 "$DEN" fork --full "$b")
		goes_on "$f" "fork $i"
		goes_on "$b" "the box after fork $i"
		den rm --force "$f"
	done
}

#@ root
test_a_single_fork_leaves_no_images_and_a_checkpoint_of_files() {
	local b f
	can_lend
	b=$(carrier)
	carry "$b" heap=64 clock
	den exec "$b" -- sh -c 'echo then >/when'
	f=$(timeout 60 "$DEN" fork --full "$b")
	fine "$f" 0
	fine "$b" 0
	is "files in $DEN_STATE/memory" "$(find "$DEN_STATE/memory" -type f -o -type p | wc -l)" 0
	try den log --json "$b"
	want_out_has '"for a fork"'
	[[ $out != *'"full":true'* ]] || fail "a full checkpoint is left: $out"
	den exec "$b" -- sh -c 'echo now >/when'
	is "file of the fork" "$(den exec "$f" -- cat /when)" then
	# of that checkpoint another fork has the files, and says that there are no programs
	try den fork --full "$b@1"
	[ "$rc" != 0 ] || fail "it went well"
	want_err_has "no programs were saved"
	is "files of a fork of it" "$(den exec "$(den fork "$b@1")" -- cat /when)" then
}

# Who asked for it, who makes it, and who lends it: whichever of them dies or fails, the box goes on, and no half fork stays.
#@ root timeout=180
test_a_loan_that_fails_leaves_the_box_as_it_was() {
	local b at
	can_lend
	b=$(box)
	writer "$b"
	for at in fail:load fail:loaded fail:met kill:load kill:loaded kill:met; do
		try env DEN_TEST="$at" timeout 60 "$DEN" fork --full "$b"
		[ "$rc" != 0 ] || fail "$at: it went well"
		goes_on "$b" "$at"
		soon 8 alone_here "$b" || fail "$at: $(boxes)"
	done
	for at in fail:lend kill:lend kill:lent; do
		with "$at" "$b" fork --full "$b"
		[ "$rc" != 0 ] || den rm --force "$out"
		goes_on "$b" "$at of who lends"
		soon 8 alone_here "$b" || fail "$at: $(boxes)"
	done
}

#@ root timeout=120
test_a_client_who_goes_away_ends_the_loan() {
	local b pid i
	can_lend
	b=$(box)
	writer "$b"
	for i in 0.02 0.05 0.08; do
		DEN_TEST=wait:load "$DEN" fork --full "$b" >/dev/null 2>&1 &
		pid=$!
		sleep "$i"
		kill -9 "$pid"
		wait "$pid" || :
		goes_on "$b" "killed after $i s"
		soon 10 alone_here "$b" || fail "killed after $i s: $(boxes)"
	done
}

# Who comes for it too late gets a copy from images, without having to ask again.
#@ root timeout=120
test_a_loan_that_ended_too_soon_is_made_good_by_a_copy() {
	local b f
	can_lend
	b=$(box)
	writer "$b"
	with fail:unlend "$b" fork --full "$b"
	[ "$rc" = 0 ] || fail "$err"
	f=$out
	goes_on "$f" "the fork"
	goes_on "$b" "the box"
}

# works PID: it has used processor time since it was looked at last
works() {
	local t
	t=$(awk '{ print $14 + $15 }' "/proc/$1/stat")
	[ "$t" -gt "${worked:-$t}" ] || { worked=${worked:-$t}; return 1; }
}

# A keeper that dies before it lets the box go leaves it held: nobody has to ask for the box for it to go on.
#@ root
test_a_box_whose_keeper_died_when_it_had_lent_goes_on_by_itself() {
	local b pid worked=
	can_lend
	b=$(box)
	writer "$b"
	pid=$(pgrep -P "$(field "$b" init_pid)" python3)
	drop_keeper "$b"
	try env DEN_TEST=kill:lent timeout 60 "$DEN" fork --full "$b"
	[ "$rc" = 0 ] || fail "$err"
	works "$pid" || :
	soon 5 works "$pid" || fail "it is held: $(cat "/proc/$pid/wchan")"
	goes_on "$out" "the fork"
}

# Memory that need not be kept (MAP_DROPPABLE) is not lent: nobody comes for it.
#@ root
test_a_fork_does_not_wait_for_memory_that_is_not_kept() {
	local b began took
	can_lend
	[ "$(uname -m)" = x86_64 ] || skip "numbers of system calls are those of x86_64"
	b=$(box)
	# nothing else of it is large enough to be lent: mmap(), and read() into that
	den exec --detach "$b" -- /usr/bin/perl -e '
$m = syscall(9, 0, 64 << 20, 3, 0x28, -1, 0);
open($z, "<", "/dev/zero");
open($f, ">", "/passes") && print $f "." if $m > 0 && syscall(0, fileno($z), $m, 64 << 20) == 64 << 20;
close($f);
sleep(1000)' >/dev/null
	soon 10 den exec "$b" -- test -s /passes || skip "this kernel has no MAP_DROPPABLE"
	began=$(date +%s%N)
	timeout 60 "$DEN" fork --full "$b" >/dev/null
	took=$((($(date +%s%N) - began) / 1000000))
	[ "$took" -lt 4500 ] || fail "it took $took ms"
}

# What is wrong with a fork for another reason is told at once: the box is not held for a copy as well.
#@ root
test_a_fork_that_cannot_be_is_tried_once() {
	local b
	can_lend
	b=$(box)
	writer "$b"
	try timeout 60 "$DEN" fork --full --policy nobodys "$b"
	[ "$rc" != 0 ] || fail "it went well"
	want_err_has "no policy 'nobodys'"
	is checkpoints "$(den log --json "$b" | grep -o '"for a fork"' | wc -l)" 1
	goes_on "$b" "the box"
}
