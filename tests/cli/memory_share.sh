# Pages that full checkpoints of one box have in common are on disk once.

source "$TESTS/kit_memory.sh"

dir_of() {
	echo "$DEN_STATE/memory/$1/$2"
}

# is_sealed BOX N: its large files are pages by now, and gone
is_sealed() {
	grep -q '^den-memory 2' "$(dir_of "$1" "$2")/manifest" 2>/dev/null && [ ! -e "$(dir_of "$1" "$2")/.making" ] &&
		[ -z "$(find "$(dir_of "$1" "$2")" -type f -size +64k ! -name '.pa*')" ]
}

# large BOX N: the name of the largest file that it has
large() {
	ls -AS "$(dir_of "$1" "$2")" | head -1
}

# kb BOX: what its images take on disk
kb() {
	du -sk "$DEN_STATE/memory/$1" | cut -f1
}

# points_of BOX COUNT: so many full checkpoints, a step of its programs before each, each sealed before the next
points_of() {
	local i n
	for i in $(seq "$2"); do
		tell "$1" step
		n=$(full "$1") || fail "no checkpoint $i"
		soon 60 is_sealed "$1" "$n" || fail "checkpoint $n is not sealed: $(ls -la "$(dir_of "$1" "$n")")"
		echo "$n"
	done
}

# told BOX N KEY: of the log
told() {
	"$DEN" log --json "$1" | python3 -c "import json, sys; print([c for c in json.load(sys.stdin) if c['number'] == $2][0]['$3'])"
}

# sealer: the process that seals something of this test's
sealer() {
	local p
	for p in $(pgrep -x den-job); do
		[ "$(readlink "/proc/$p/fd/3")" != "$DEN_STATE" ] || echo "$p"
	done
}

nobody_seals() {
	[ -z "$(sealer)" ]
}

# is_making BOX N: waits until its pack is being written
is_making() {
	local end=$(($(now_ms) + 20000))
	while [ ! -e "$(dir_of "$1" "$2")/.making" ] && ! is_sealed "$1" "$2" && [ "$(now_ms)" -lt $end ]; do :; done
}

#@ root timeout=240
test_checkpoints_of_one_box_share_their_pages() {
	local b f n p i one all
	can_save
	b=$(carrier --memory 1g)
	carry "$b" heap=60
	p=$(points_of "$b" 1)
	one=$(kb "$b")
	[ "$one" -gt 60000 ] || fail "60 megabytes that nothing compresses take $one kB"
	is "shared by one" "$(told "$b" "$p" memory_shared)" 0
	n=$(points_of "$b" 3) || fail "$n"
	set -- $p $n
	all=$(kb "$b")
	# each step writes to an eighth of the pages: three eighths more, and what programs have besides
	[ "$all" -lt $((one * 155 / 100)) ] || fail "four take $all kB, one took $one"
	[ "$(told "$b" "$4" memory_shared)" -gt 50000000 ] || fail "it does not tell what it shares: $(den log --json "$b")"
	[ "$(told "$b" "$4" memory_disk)" -lt 20000000 ] || fail "it does not tell what it has alone: $(den log --json "$b")"
	[ "$(told "$b" "$4" memory)" -gt 60000000 ] || fail "it does not tell how much it is: $(den log --json "$b")"
	for i in 3 1 4 2; do
		den rollback "$b" "${!i}" >/dev/null
		fine "$b" "$i"
	done
	f=$(den fork --full "$b@$2")
	fine "$f" 2
	tell "$f" step
	fine "$f" 3
	den rm --force "$f"
	# and of a template that is made of one, when its box is gone
	den template bake shared --from "$b@$3" --full >/dev/null
	den rm --force "$b"
	f=$(den create --template shared)
	fine "$f" 3
	den rm --force "$f"
	den template rm shared >/dev/null
	soon 5 not find_any "$DEN_STATE/memory" || fail "something stays: $(find "$DEN_STATE/memory")"
}

find_any() {
	[ -n "$(find "$1" -type f 2>/dev/null)" ]
}

#@ root timeout=240
test_checkpoints_that_share_pages_go_in_any_order() {
	local b n all
	can_save
	b=$(carrier --memory 1g)
	carry "$b" heap=60
	n=$(points_of "$b" 4) || fail "$n"
	set -- $n
	all=$(kb "$b")
	den tag "$b@$2" two
	den tag "$b@$3" three
	den prune --all "$b" >/dev/null # the first goes, which wrote most of the pages
	[ ! -e "$(dir_of "$b" "$1")" ] || fail "the first is still there"
	den rollback "$b" two >/dev/null
	fine "$b" 2
	den rollback "$b" "$4" >/dev/null
	fine "$b" 4
	den tag --delete "$b" two
	den prune --all "$b" >/dev/null
	[ ! -e "$(dir_of "$b" "$2")" ] || fail "the second is still there"
	[ "$(kb "$b")" -lt "$all" ] || fail "what only they had is still there: $(kb "$b") of $all kB"
	den rollback "$b" three >/dev/null
	fine "$b" 3
	tell "$b" step
	n=$(points_of "$b" 1) # step 5, with pages of what is left
	[ "$(told "$b" "$n" memory_shared)" -gt 50000000 ] || fail "it shares nothing: $(den log --json "$b")"
	den rollback "$b" "$n" >/dev/null
	fine "$b" 5
}

#@ root timeout=240
test_a_page_that_is_damaged_is_refused_by_all_that_have_it() {
	local b n i pack
	can_save
	b=$(carrier --memory 1g)
	carry "$b" heap=60
	n=$(points_of "$b" 2) || fail "$n"
	set -- $n
	pack=$(large "$b" "$1")
	is "shared" "$(large "$b" "$2")" "$pack"
	printf '\377\376\375\374' | dd of="$(dir_of "$b" "$1")/$pack" bs=1 seek=30000000 conv=notrunc status=none
	n=$(points_of "$b" 1) || fail "$n" # does not rely on it
	for i in "$1" "$2"; do
		try den rollback "$b" "$i"
		[ "$rc" != 0 ] || fail "it was taken"
		want_err_has "damaged"
		try den fork --full "$b@$i"
		[ "$rc" != 0 ] || fail "it was taken"
		want_err_has "damaged"
	done
	den rollback "$b" "$n" >/dev/null
	fine "$b" 3
}

#@ root timeout=240
test_who_seals_may_be_killed_at_any_time() {
	local b n i p
	can_save
	b=$(carrier --memory 1g)
	carry "$b" heap=60
	n=$(points_of "$b" 1) || fail "$n"
	for i in 2 3 4; do
		tell "$b" step
		n="$n $(full "$b")" || fail "no checkpoint $i"
		# in the middle: early, and when its own pack is there
		if [ "$i" = 2 ]; then is_making "$b" "${n##* }"; else sleep 0.0$i; fi
		for p in $(sealer); do kill -9 "$p"; done
		soon 5 nobody_seals || fail "it is still there: $(sealer)"
	done
	set -- $n
	for i in 2 4 1 3; do
		den rollback "$b" "${!i}" >/dev/null
		fine "$b" "$i"
	done
	tell "$b" step
	n=$(points_of "$b" 1) || fail "$n" # step 5: the line is free
	den rollback "$b" "$n" >/dev/null
	fine "$b" 5
	den rm --force "$b"
	soon 5 not test -e "$DEN_STATE/memory/$b" || fail "something stays: $(find "$DEN_STATE/memory")"
}
