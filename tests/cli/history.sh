# History: checkpoints, rollback, tags, thinning, the pool.

source "$TESTS/kit_history.sh"

turns_leave_checkpoints() {
	local b n
	b=$(box)
	n=$(points "$b")
	is "in the beginning" "$n" 1
	in_box "$b" 'echo 1 >/root/a'
	is "after a change" "$(points "$b")" 2
	in_box "$b" 'cat /root/a >/dev/null; ls -lR /etc >/dev/null'
	den exec "$b" -- true
	is "after looking" "$(points "$b")" 2
	in_box "$b" 'for i in 1 2 3 4 5 6 7 8 9; do echo $i >/root/$i; done'
	is "one exec is one" "$(points "$b")" 3
	echo x | den fs write "$b" /root/w
	is "after fs write" "$(points "$b")" 4
	den fs mkdir "$b" /root/d
	is "after fs mkdir" "$(points "$b")" 5
	den fs cat "$b" /root/w >/dev/null
	den fs ls "$b" / >/dev/null
	den fs stat "$b" /root/w >/dev/null
	den cp "$b:/root/w" .
	den ps "$b" >/dev/null
	den inspect "$b" >/dev/null
	den stats --once "$b" >/dev/null
	den log "$b" >/dev/null
	den show "$b" >/dev/null
	den diff "$b" >/dev/null
	den diff --text "$b" >/dev/null
	den diff --tar "$b" >/dev/null
	is "after looking from outside" "$(points "$b")" 5
	in_box "$b" 'false' || :
	is "after a failed exec" "$(points "$b")" 5
	in_box "$b" 'echo 2 >/root/a; false' || :
	is "after a failed exec that wrote" "$(points "$b")" 6
	den stop --grace 0 "$b"
	den start "$b"
	den exec "$b" -- true
	is "after a new start" "$(points "$b")" 6
	is "what it was" "$(den log --json "$b" | js 'v[0]["message"]')" "sh -c echo 2 >/root/a; false"
	# the same content and length, written again, is a change of the file's times alone
	in_box "$b" 'chmod 600 /root/a'
	is "after chmod" "$(den show --json "$b" | js '[(c["path"], c["kind"], c["changed"]) for c in v["changes"]]')" \
		"[('/root/a', 'meta', ['mode'])]"
}

#@ root user range
test_every_change_leaves_a_checkpoint() {
	turns_leave_checkpoints
}

#@ root fresh
test_every_change_leaves_a_checkpoint_on_a_plain_pool() {
	den pool --kind plain >/dev/null
	turns_leave_checkpoints
	is kind "$(den pool --json | js 'v["kind"]')" plain
}

#@ root user range
test_what_a_start_makes_is_no_change() {
	local b
	mkdir shared
	b=$(box --mount "$PWD/shared:/a/b/shared")
	den exec "$b" -- true
	is "with a mount point" "$(points "$b")" 1
	try den undo "$b"
	want_rc 3
	in_box "$b" 'echo 1 >/a/b/shared/f'
	is "in what is shared" "$(points "$b")" 1
	in_box "$b" 'echo 1 >/root/f'
	den rollback "$b" base >/dev/null
	den exec "$b" -- true
	try den undo "$b"
	want_rc 3
	is "after a rollback" "$(points "$b")" 2
	is "what is shared stays" "$(cat shared/f)" 1
	den exec "$(den fork "$b")" -- cat /a/b/shared/f >/dev/null
}

#@ root user
test_log_draws_a_tree() {
	local b
	b=$(box --name tree)
	in_box tree 'echo 1 >/root/a'
	in_box tree 'echo 2 >/root/a'
	den rollback tree 1 >/dev/null
	in_box tree 'echo 3 >/root/a'
	try den log tree
	want_rc 0
	want_out_has '^\* +3 .* turn +([0-9.]+ [KMG]?i?B|-)? +\(head\) sh -c echo 3'
	want_out_has '^\| \* +2 .* turn +([0-9.]+ [KMG]?i?B|-)? +sh -c echo 2'
	want_out_has "^\*-' +1 .* turn +([0-9.]+ [KMG]?i?B|-)? +sh -c echo 1"
	want_out_has '^\* +0 .* base '
	is lines "$(wc -l <<<"$out")" 5
	is "newest first" "$(den log --quiet tree | tr '\n' ' ')" "3 2 1 0 "
	is "-n 2" "$(den log -q -n 2 tree | tr '\n' ' ')" "3 2 "
	den log --json tree | is_json
	is parents "$(den log --json tree | js '[c["parent"] for c in v]')" "[1, 1, 0, None]"
	try den log -n 0 tree
	want_rc 2
	try den log nobody
	want_rc 3
	# a fork says where it came from
	den fork --name twig tree@2 >/dev/null
	try den log twig
	want_out_has "fork +.*\(head\) .*$b@2"
}

#@ root user
test_a_message_may_be_anything() {
	local b
	b=$(box)
	den checkpoint -m $'\e[31mred\nline\xff' "$b" >/dev/null
	in_box "$b" $'echo >/root/x #\e[32m\xfe\n: next'
	den log "$b" >o
	not grep -q $'\e' o || fail "raw escape in log"
	is lines "$(wc -l <o)" 4
	den show "$b@1" >o
	not grep -q $'\e' o || fail "raw escape in show"
	grep -q '^message .*red' o
	den log --json "$b" | is_json
	den show --json "$b" | is_json
	den checkpoint -m "$(printf 'x%.0s' $(seq 3000))" "$b" >/dev/null
	is "all of it" "$(den show --json "$b" | js 'len(v["checkpoint"]["message"])')" 3000
	at_most "bytes of the longest line" "$(den log "$b" | wc -L)" 160
	try den checkpoint -m "$(printf 'x%.0s' $(seq 9000))" "$b"
	[ "$rc" != 0 ] || fail "a message of 9,000 bytes"
}

#@ root user range
test_history_can_be_manual_or_off() {
	local b
	b=$(box --name m --history manual)
	is told "$(field m history)" manual
	in_box m 'echo 1 >/root/a'
	is "after a change" "$(points m)" 1
	is number "$(den checkpoint m)" 1
	is "after asking" "$(points m)" 2
	in_box m 'echo 2 >/root/a'
	den rollback m 1 >/dev/null
	is content "$(den fs cat m /root/a)" 1
	# what was not kept before the rollback is kept by it
	den rollback m head >/dev/null
	is "rolled back over something" "$(points m)" 3
	den rollback m 2 >/dev/null
	is "and undone" "$(den fs cat m /root/a)" 2

	b=$(box --name o --history off)
	is told "$(field o history)" off
	in_box o 'echo 1 >/root/a'
	for verb in "log o" "checkpoint o" "diff o" "show o" "undo o" "rollback o base" "fork o" "tag o" "tag o x" "prune o"; do
		try den $verb
		[ "$rc" = 8 ] || fail "den $verb: $(told)"
		want_err_has 'no history'
	done
	is default "$(field "$(box)" history)" on
	try den create --history maybe
	want_rc 2
	want_err_has "on.*manual.*off"
}

#@ root user
test_a_throwaway_box_has_no_history() {
	local p
	mkfifo hold
	"$DEN" run --name gone -- cat <hold >/dev/null &
	p=$!
	exec 7>hold
	soon 10 is_state gone running
	try den log gone
	want_rc 8
	want_err_has 'throwaway'
	try den fork gone
	want_rc 8
	exec 7>&-
	wait $p
}

#@ root user range
test_a_rollback_stops_programs_and_can_be_undone() {
	local b id boot
	id=$(box --name r)
	in_box r 'mkdir /root/d; echo old >/root/d/f; ln -s f /root/d/l'
	in_box r 'rm -rf /root/d; echo new >/root/n; chmod 700 /root/n'
	den exec --detach --tag s r -- sleep 1000 >/dev/null
	boot=$(field r boot_id)
	try den rollback r 1
	want_rc 0
	want_out_has 'as it was at checkpoint 1'
	want_out_has 'den rollback r 2'
	is state "$(state_of r)" running
	is id "$(field r id)" "$id"
	[ "$(field r boot_id)" != "$boot" ] || fail "it was not started again"
	is files "$(in_box r 'cat /root/d/l; ls /root')" "$(printf 'old\nd')"
	not in_box r 'pgrep sleep' || fail "a program of before runs"
	# and back
	den rollback r 2 >/dev/null
	is files "$(in_box r 'ls /root; stat -c %a /root/n')" "$(printf 'n\n700')"
	# what a program writes in the background is kept, too
	den exec --detach r -- sh -c 'echo late >/root/late; exec sleep 1000' >/dev/null
	soon 5 den fs cat r /root/late >/dev/null
	b=$(den rollback --quiet r base)
	is files "$(in_box r 'ls /root')" ""
	den rollback r "$b" >/dev/null
	is files "$(in_box r 'ls /root')" "$(printf 'late\nn')"
	den rollback --json r 1 | is_json
}

#@ root user range
test_undo_takes_back_what_changed_something() {
	local b i
	b=$(box)
	for i in 1 2 3 4 5; do
		in_box "$b" "echo $i >/root/f"
		den exec "$b" -- true
	done
	try den undo "$b"
	want_rc 0
	want_out_has 'den rollback .* 5'
	is one "$(den fs cat "$b" /root/f)" 4
	den undo "$b" 3 >/dev/null
	is three "$(den fs cat "$b" /root/f)" 1
	den undo "$b" >/dev/null
	try den fs cat "$b" /root/f
	want_rc 3
	try den undo "$b"
	want_rc 3
	try den undo "$b" 0
	want_rc 2
	try den undo "$b" two
	want_rc 2
	den rollback "$b" 5 >/dev/null
	is "all of it" "$(den fs cat "$b" /root/f)" 5
	try den undo "$b" 6
	want_rc 3
	is "nothing happened" "$(den fs cat "$b" /root/f)" 5
}

#@ root user
test_a_stopped_box_has_its_history_too() {
	local b f
	b=$(box --name st)
	in_box st 'echo 1 >/root/f'
	in_box st 'echo 2 >/root/f'
	den stop --grace 0 st
	is points "$(points st)" 3
	den diff st 1 >o
	is diff "$(cat o)" "M /root/f"
	den checkpoint -m stopped st >/dev/null
	den rollback st 1 >/dev/null
	is "stays stopped" "$(state_of st)" stopped
	f=$(den fork st)
	is fork "$(den fs cat "$f" /root/f)" 1
	is "stays stopped" "$(state_of st)" stopped
	in_box "$f" 'echo 3 >/root/f'
	den merge "$f" >/dev/null
	is "stays stopped" "$(state_of st)" stopped
	den start st
	is "after the merge" "$(den fs cat st /root/f)" 3
	den stop --grace 0 st
	den undo st >/dev/null
	den start st
	is "after undo" "$(den fs cat st /root/f)" 1
}

#@ root user
test_a_reference_that_names_nothing_is_told() {
	local a b ref
	a=$(box --name a)
	b=$(box --name b)
	in_box a 'echo 1 >/root/f'
	den tag a@1 mine
	for ref in 7 nothing ~9 -1 "$a@1" 1x '' 99999999999999999999; do
		try den rollback b -- "$ref"
		[ "$rc" = 3 ] || [ "$rc" = 2 ] || [ -z "$ref" ] || fail "rollback '$ref': $(told)"
		try den diff b -- "$ref" now
		[ "$rc" = 3 ] || [ "$rc" = 2 ] || [ -z "$ref" ] || fail "diff '$ref': $(told)"
	done
	# another box's checkpoint is not ours, by tag or by number
	try den rollback b mine
	want_rc 3
	try den rollback b 1
	want_rc 3
	want_err_has 'den log'
	try den show b@1
	want_rc 3
	try den fork b@mine
	want_rc 3
	try den tag b@1 x
	want_rc 3
	for ref in b@ @1 b@now; do
		try den show $ref
		[ "$rc" = 2 ] || [ "$rc" = 3 ] || fail "show $ref: $(told)"
	done
	is "no fork was made" "$(boxes | wc -l)" 2
	is "nothing happened" "$(points b)" 1
}

#@ root user
test_tags_name_checkpoints() {
	local b t
	b=$(box --name t)
	in_box t 'echo 1 >/root/f'
	in_box t 'echo 2 >/root/f'
	den tag t@1 good
	den tag t newest
	is "list" "$(den tag --quiet t | tr '\n' ' ')" "good newest "
	den tag --json t | is_json
	try den tag t
	want_out_has '^good +1 '
	try den log t
	want_out_has '\(head, newest\)'
	den rollback t good >/dev/null
	is content "$(den fs cat t /root/f)" 1
	is show "$(den show --json t@good | js 'v["checkpoint"]["number"]')" 1
	# it moves
	den tag t@2 good
	is moved "$(den show --json t@good | js 'v["checkpoint"]["number"]')" 2
	for t in 12 head now base 'a b' a/b $'a\nb' '~1' 'a@b' ü "$(printf 'x%.0s' $(seq 65))"; do
		try den tag t -- "$t"
		[ "$rc" = 2 ] || fail "tag '$t': $(told)"
	done
	den tag --delete t good
	try den tag --delete t good
	want_rc 3
	try den rollback t good
	want_rc 3
	try den tag --delete t
	want_rc 2
	try den tag --delete t@1 newest
	want_rc 2
	try den tag t@1
	want_rc 2
	is "with a tag" "$(den checkpoint --tag x.y_z-1 t)" 3
	is tags "$(den show --json t@x.y_z-1 | js 'v["checkpoint"]["number"]')" 3
	try den checkpoint --tag head t
	want_rc 2
	want_err_has 'checkpoint 4 is made'
}

#@ root user
test_prune_keeps_what_has_a_name() {
	local b i
	b=$(box --name p)
	for i in 1 2 3 4 5 6; do in_box p "echo $i >/root/f"; done
	den tag p@2 keep
	try den prune p
	want_rc 0
	want_out 'p: 0 checkpoints removed'
	den prune --keep 1h p >/dev/null
	is "all are young" "$(points p)" 7
	try den prune --all p
	want_out 'p: 4 checkpoints removed'
	is left "$(den log --quiet p | tr '\n' ' ')" "6 2 0 "
	is "line" "$(den log --json p | js '[c["parent"] for c in v]')" "[2, 0, None]"
	is content "$(den fs cat p /root/f)" 6
	den rollback p keep >/dev/null
	is content "$(den fs cat p /root/f)" 2
	try den rollback p 4
	want_rc 3
	in_box p 'echo 7 >/root/f'
	den rollback p 6 >/dev/null
	is content "$(den fs cat p /root/f)" 6
	sleep 1
	try den prune --keep 500ms --json p
	want_rc 0
	is removed "$(js 'v["removed"]' <<<"$out")" 1
	den tag --delete p keep
	den prune --all p >/dev/null
	is left "$(den log --quiet p | tr '\n' ' ')" "6 0 "
	try den prune --all --keep 1h p
	want_rc 2
	try den prune p nobody
	want_rc 3
	want_out_has '^p: 0'
}

#@ root timeout=90
test_a_checkpoint_is_one_instant() {
	local b i f n
	b=$(box)
	# Whoever looks at one instant sees b as large as a, or one behind.
	in_box "$b" 'echo 0 >/root/a; echo 0 >/root/b'
	den exec --detach "$b" -- /usr/bin/python3 -c '
import os
i = 0
while True:
    i += 1
    for n in "ab":
        with open("/root/." + n, "w") as f: f.write(str(i))
        os.rename("/root/." + n, "/root/" + n)' >/dev/null
	for i in 1 2 3 4 5; do
		n=$(den checkpoint "$b")
		f=$(den fork "$b@$n")
		in_box "$f" 'a=$(cat /root/a) b=$(cat /root/b); echo $a $b; [ $((a - b)) = 0 ] || [ $((a - b)) = 1 ]' >>seen
		den rm --force "$f"
	done
	at_least "different instants" "$(sort -u seen | wc -l)" 4
}

#@ user range
test_a_checkpoint_works_under_a_running_writer() {
	local b i
	b=$(box)
	den exec --detach "$b" -- sh -c 'i=0; while :; do i=$((i + 1)); echo $i >/root/f.$((i % 50)); rm -f /root/f.$(((i + 7) % 50)); done' >/dev/null
	for i in 1 2 3 4 5; do den checkpoint "$b" >/dev/null; done
	is points "$(den log --json "$b" | js 'sum(c["kind"] == "manual" for c in v)')" 5
	den rollback "$b" 1 >/dev/null
}

#@ root user range
test_a_deleted_box_leaves_nothing_in_the_pool() {
	local b f
	b=$(box)
	f=$(den fork "$b")
	in_box "$b" 'mkdir /root/d; seq 200 >/root/d/f; chmod 0 /root/d'
	in_box "$b" 'touch /root/g'
	in_box "$f" 'echo 1 >/root/f'
	den checkpoint "$b" >/dev/null
	den merge "$f" >/dev/null
	den rollback "$b" 1 >/dev/null
	den rm --force "$b"
	in_box "$f" 'cat /root/f' >/dev/null
	den rm --force "$f"
	soon 10 pool_is_empty || fail "left: $(in_pool)"
}

#@ root user range
test_a_limit_of_disk_goes_along() {
	local b f
	if [ "$VARIANT" != root ]; then
		try den create --disk 100M
		want_rc 8
		return
	fi
	b=$(box --disk 64M)
	in_box "$b" 'echo 1 >/root/f'
	in_box "$b" 'echo 2 >/root/f'
	is points "$(points "$b")" 3
	is diff "$(den diff "$b" ~1)" "M /root/f"
	den undo "$b" >/dev/null
	is content "$(den fs cat "$b" /root/f)" 1
	f=$(den fork "$b")
	is fork "$(den fs cat "$f" /root/f)" 1
	try den exec "$f" -- sh -c 'head -c 100M /dev/zero >/root/big'
	[ "$rc" != 0 ] || fail "more than the limit"
}

#@ root user fresh
test_pool_tells_and_is_made_once() {
	local kind other
	try den pool
	want_rc 0
	want_out_has 'none yet'
	try den pool --kind zfs
	want_rc 2
	if [ "$VARIANT" = root ]; then
		kind=btrfs other=plain
		den pool --kind btrfs --size 300M >/dev/null
		den pool --json | is_json
		at_most bytes "$(den pool --json | js 'v["bytes"] >> 20')" 300
		den pool --size 500M >/dev/null
		at_least bytes "$(den pool --json | js 'v["bytes"] >> 20')" 490
	else
		kind=plain other=btrfs
		box >/dev/null
	fi
	is kind "$(den pool --json | js 'v["kind"]')" $kind
	try den pool --kind $other
	[ "$rc" = 4 ] || [ "$rc" = 8 ] || fail "another kind: $(told)"
	is kind "$(den pool --json | js 'v["kind"]')" $kind
}

#@ root user
test_help_of_history_teaches() {
	local v
	for v in log show diff undo rollback checkpoint tag fork merge bisect prune pool; do
		try den $v --help
		want_rc 0
		want_out_has '^Examples:'
		want_out_has "^  den $v"
		grep -q "Cm $v" "$TESTS/../man/den.1" 2>/dev/null || [ ! -e "$TESTS/../man/den.1" ] || fail "$v is not in the manual"
	done
}

# Each generation is a fork of the one before, which is gone: nothing of it may be missing, and nothing
# may be looked up through a hundred layers.
#@ root timeout=180
test_a_hundred_generations_deep() {
	local i old new
	old=$(box)
	for i in $(seq 100); do
		in_box "$old" "echo $i >/root/g$i"
		new=$(den fork "$old")
		den rm --force "$old"
		old=$new
	done
	is files "$(in_box "$old" 'cat /root/g* | sort -n | tail -n 1; ls /root | grep -c "^g"')" "$(printf '100\n100')"
	is "own checkpoints" "$(points "$old")" 1
	is "layers below" "$(in_box "$old" 'grep -c overlay /proc/self/mounts')" "$(den run -- grep -c overlay /proc/self/mounts)"
	is diff "$(den diff "$old" base now | grep -c '' || :)" 0
}
