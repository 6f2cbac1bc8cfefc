# History: checkpoints, rollback, forks, comparing, merging.

# js EXPRESSION: of the JSON value v on standard input
js() {
	/usr/bin/python3 -c '
import json, sys
v = json.load(sys.stdin)
r = eval(sys.argv[1])
print("" if r is None else r)' "$1"
}

# Nothing is shared with these: a mount point would be a change of its own.
box() {
	"$DEN" create "$@"
}

points() {
	den log --quiet "$1" | wc -l
}

head_of() {
	den log --json "$1" | js '[c["number"] for c in v if c["head"]][0]'
}

# in_box BOX SCRIPT...: a turn
in_box() {
	local b=$1
	shift
	den exec "$b" -- sh -c "$*"
}

# What is in the pool, one entry a line; an image is looked into when no keeper has it any more.
in_pool() {
	if [ -e "$DEN_STATE/pool.img" ]; then
		mkdir -p "$TMP/look"
		unshare -m sh -c 'mount -o loop,ro "$0" "$1" && ls -A "$1"' "$DEN_STATE/pool.img" "$TMP/look"
	else
		ls -A "$DEN_STATE/pool"
	fi | grep -vx -e layers -e '\.index' || :
}

pool_is_empty() {
	[ -z "$(in_pool)" ]
}

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

forks_are_apart() {
	local b f g
	b=$(box --name main --env K=V --workdir /tmp)
	in_box main 'echo 1 >/root/f; mkdir /root/d; echo x >/root/d/x'
	in_box main 'echo 2 >/root/f'
	f=$(den fork --name side main)
	is "as it was" "$(den fs cat side /root/f)" 2
	in_box side 'echo side >/root/f; rm -r /root/d; echo s >/usr/side'
	in_box main 'echo main >/root/f; echo m >/usr/main'
	is "of the box" "$(den fs cat main /root/f)" main
	is "of the fork" "$(den fs cat side /root/f)" side
	in_box main 'test -e /root/d/x && test ! -e /usr/side'
	in_box side 'test ! -e /root/d && test ! -e /usr/main'
	[ "$(in_box main 'cat /etc/machine-id')" != "$(in_box side 'cat /etc/machine-id')" ] || fail "one machine-id"
	is hostname "$(in_box side hostname)" side
	is hostname "$(in_box main hostname)" main
	is "its own log" "$(points side)" 2
	is env "$(in_box side 'echo $K; pwd')" "$(printf 'V\n/tmp')"
	# of something older, by number and back from the fork
	g=$(den fork main@1)
	is "older" "$(den fs cat "$g" /root/f)" 1
	den rollback side base >/dev/null
	is "its beginning" "$(den fs cat side /root/f)" 2
	# the box goes, its forks stay
	den rm --force main
	is "after the box went" "$(den fs cat side /root/f)" 2
	in_box "$g" 'echo more >>/root/f'
	den undo "$g" >/dev/null
	is "after the box went" "$(den fs cat "$g" /root/f)" 1
	# a fork of a fork
	f=$(den fork side)
	is "fork of a fork" "$(den fs cat "$f" /root/d/x)" x
}

#@ root user range
test_forks_go_their_own_way() {
	forks_are_apart
}

#@ root fresh
test_forks_go_their_own_way_on_a_plain_pool() {
	den pool --kind plain >/dev/null
	forks_are_apart
}

#@ root user
test_many_forks_at_once() {
	local b
	b=$(box --name many)
	in_box many 'echo 1 >/root/f'
	den exec --detach many -- sh -c 'while :; do date +%N >/root/busy; done' >/dev/null
	den fork --count 4 --name k many >o
	is ids "$(wc -l <o)" 4
	is names "$(for i in $(cat o); do field "$i" name; done | tr '\n' ' ')" "k-1 k-2 k-3 k-4 "
	is "all the same" "$(for i in $(cat o); do den log --json "$i" | js 'v[-1]["origin"]'; done | sort -u | wc -l)" 1
	den fork --count 2 --json many | is_json lines
	# one name is taken in the middle
	den exec k-1 -- true
	box --name z-2 >/dev/null
	try den fork --count 3 --name z many
	want_rc 4
	want_err_has 'fork 2 of 3'
	want_err_has 'the 1 before it'
	is "told" "$(wc -l <<<"$out")" 1
	is "made" "$(field "$out" name)" z-1
	try den fork --count 0 many
	want_rc 2
	try den fork --name main many
	want_rc 0
	try den fork --name main many
	want_rc 4
}

#@ root user range
test_diff_tells_every_kind_of_change() {
	local b
	b=$(box)
	in_box "$b" 'cd /root; mkdir dir gone same; echo 1 >dir/f; echo 1 >gone/a; echo 1 >mode; echo 1 >content
		ln -s a link; echo 1 >type; echo 1 >same/f; touch gone/b'
	den checkpoint --tag before "$b" >/dev/null
	in_box "$b" 'cd /root; mkdir new; echo 1 >new/f; rm -r gone; chmod 751 mode; echo 2 >content; ln -sfn b link
		rm type; mkdir type; mkfifo pipe; chmod 700 same; rm dir/f'
	den diff "$b" before >o
	cp o o2
	sort o >got
	sort >want <<-'END'
		A /root/new/
		A /root/new/f
		A /root/pipe
		D /root/dir/f
		D /root/gone/
		M /root/content
		M /root/link (target)
		M /root/type/ (type)
		m /root/mode (mode)
		m /root/same/ (mode)
	END
	# what a removed directory held, and what a changed type brings along, may be told or not
	grep -v -e '^D /root/gone/.' got | diff want -
	is "in order" "$(sed 's/^..//; s/ (.*//; s,/$,,' o | LC_ALL=C sort | md5sum)" "$(sed 's/^..//; s/ (.*//; s,/$,,' o | md5sum)"
	den diff --json "$b" before | is_json lines
	den diff --json "$b" before >o
	grep -q '"path":"/root/mode","kind":"meta","type":"file","changed":\["mode"\],"mode":"0751"' o || fail "$(cat o)"
	den diff --name-only "$b" before | diff - <(sed 's/^..//; s/ (.*//; s,/$,,' o2)
	# backwards it is the reverse
	den diff "$b" now before >o
	grep -qx 'D /root/pipe' o
	grep -qx 'A /root/dir/f' o
	is "nothing between" "$(den diff "$b" before before)" ""
	# of the template: /usr and /etc
	in_box "$b" 'rm /usr/bin/env; echo x >>/etc/passwd; chmod 600 /etc/group'
	den diff "$b" ~1 >o
	diff o - <<-'END'
		m /etc/group (mode)
		M /etc/passwd
		D /usr/bin/env
	END
}

#@ root range
test_diff_tells_owners_and_attributes() {
	local b
	b=$(box)
	in_box "$b" 'echo 1 >/root/o; echo 1 >/root/x; echo 1 >/root/n'
	in_box "$b" 'chown 1:1 /root/o'
	is owner "$(den diff "$b" ~1)" "m /root/o (owner)"
	den exec "$b" -- /usr/bin/python3 -c 'import os; os.setxattr("/root/x", "user.den", b"1")'
	is xattr "$(den diff "$b" ~1)" "m /root/x (xattr)"
}

#@ root user
test_diff_leaves_with_what_was_asked() {
	local b
	b=$(box)
	try den diff "$b"
	want_rc 0
	want_out ''
	try den diff --exit-code "$b"
	want_rc 0
	in_box "$b" 'echo 1 >/root/f'
	try den diff "$b"
	want_rc 0
	want_out 'A /root/f'
	try den diff --exit-code "$b"
	want_rc 1
	want_out 'A /root/f'
	try den diff --exit-code --quiet "$b"
	want_rc 1
	want_out ''
	try den diff --exit-code --text "$b"
	want_rc 1
	want_out_has '^\+1$'
	try den diff --exit-code --quiet "$b" head
	want_rc 0
	try den diff --text --tar "$b"
	want_rc 2
	try den diff --tar --json "$b"
	want_rc 2
	try den diff "$b" 0 1 2
	want_rc 2
	# an archive is not for a terminal
	try /usr/bin/python3 -c '
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$DEN" diff --tar "$b"
	want_rc 2
	want_out_has 'terminal'
	# a reader that goes
	in_box "$b" 'mkdir /root/d; cd /root/d; seq 3000 | xargs touch'
	try bash -c '"$DEN" diff "$0" | head -n 1; exit ${PIPESTATUS[0]}' "$b"
	want_rc 141
}

#@ root user range
test_diff_text_is_what_diff_says() {
	local b f
	b=$(box)
	mkdir one two
	seq 100 >one/middle
	sed '50s/.*/fifty/; 80d' one/middle >two/middle
	printf 'a\nb' >one/noend
	printf 'a\nb\n' >two/noend
	printf 'x\n' >one/first
	printf 'new\nx\n' >two/first
	seq 20 >one/all
	seq 21 40 >two/all
	printf 'end\n' >one/last
	printf 'end\nof it' >two/last
	for f in one/*; do den fs write "$b" "/root/${f#one/}" <"$f"; done
	den checkpoint --tag one "$b" >/dev/null
	for f in two/*; do den fs write "$b" "/root/${f#two/}" <"$f"; done
	for f in all first last middle noend; do
		den diff --text "$b" one | awk -v want="+++ b/root/$f" '
			/^diff / { on = 0 } on { print } $0 == want { on = 1 }' >got
		diff -u "one/$f" "two/$f" | tail -n +3 >want || :
		diff want got || fail "$f"
	done
	# what is no text is said to differ
	in_box "$b" 'head -c 1000 /dev/zero >/root/binary; ln -s x /root/l; chmod 755 /root/all; rm /root/first'
	den diff --text "$b" ~1 >o
	grep -qi 'binary' o
	grep -q '^deleted file mode 100644' o
	grep -q '^new mode 100755' o
	grep -q '^new file mode 120000' o
	not grep -q '^+++ b/root/binary' o || fail "a binary file as text"
}

#@ root user
test_diff_text_cannot_steer_a_terminal() {
	local b
	b=$(box)
	in_box "$b" 'printf "\033[31mred\ttab\n" >/root/f'
	den diff --text "$b" | grep -q $'\e' || fail "a pipe gets it as it is"
	try /usr/bin/python3 -c '
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$DEN" diff --text "$b"
	want_rc 0
	want_out_has 'red'
	not grep -q $'\e' <<<"$out" || fail "raw escape on a terminal"
	want_out_has $'red\ttab'
}

#@ root user range
test_diff_tar_can_be_applied_elsewhere() {
	local b f
	b=$(box)
	in_box "$b" 'mkdir -p /root/t/old; cd /root/t; echo 1 >keep; echo 1 >change; echo 1 >old/a; echo 1 >go; ln -s a l'
	den cp "$b:/root/t" t
	in_box "$b" 'cd /root/t; echo 2 >change; chmod 750 change; rm go; rm -r old; mkdir new; echo n >new/n; ln -sfn b l; ln new/n hard'
	den diff --tar "$b" ~1 >layer.tar
	tar tf layer.tar >o
	not grep -q keep o || fail "what did not change is in it"
	grep -q 'root/t/\.wh\.go$' o
	grep -q 'root/t/\.wh\.old' o
	mkdir x
	tar xf layer.tar -C x
	# a whiteout is all that tar does not know
	find x -name '.wh.*' | while read -r f; do
		rm -rf "t/$(basename "$f" | cut -c5-)" "$f"
	done
	cp -a x/root/t/. t/
	den cp "$b:/root/t" want
	diff -r --no-dereference want t
	is mode "$(stat -c %a t/change)" 750
	is link "$(readlink t/l)" b
	# and into another box, from den to den
	f=$(box)
	in_box "$f" 'mkdir /root/t'
	den cp - "$f:/" <layer.tar
	is "in another box" "$(den fs cat "$f" /root/t/new/n)" n
}

#@ root user range
test_odd_names_do_no_harm_in_history() {
	local b f
	b=$(box)
	den exec "$b" -- /usr/bin/python3 -c '
import os
os.chdir("/root")
for n in [b"new\nline", b"esc\x1b[31m", b"sp ace", b"bad\xff\xfeutf", b"-dash", b"x" * 255, b"back\\slash", "\u00fc\u6f22".encode(), b".wh.not", b"<script>", b"\"q\""]:
    open(n, "w").write("1\n")'
	den diff "$b" >o
	is lines "$(wc -l <o)" 11
	not grep -q $'\e' o || fail "raw escape in diff"
	den diff --name-only "$b" >o
	not grep -q $'\e' o
	den diff --json "$b" | is_json lines
	den show "$b" >o
	not grep -q $'\e' o || fail "raw escape in show"
	den show --json "$b" | is_json
	den diff --text "$b" | grep -a '^diff\|^+++\|^---' >o
	not grep -q $'\e' o || fail "raw escape in the headers of a diff"
	f=$(den fork "$b@base")
	in_box "$b" 'printf "a\n" >"$(printf "/root/new\nline")"'
	den rm --force "$f"
	# the same through a merge
	f=$(den fork "$b")
	den exec "$f" -- /usr/bin/python3 -c '
import os
os.chdir("/root")
open(b"new\nline", "w").write("theirs\n")
open(b"\xff\x1b[31m", "w").write("theirs\n")
os.remove(b"esc\x1b[31m")'
	in_box "$b" 'printf "ours\n" >"$(printf "/root/new\nline")"'
	try den merge "$f"
	want_rc 4
	is lines "$(wc -l <<<"$out")" 1
	not grep -q $'\e' <<<"$out$err" || fail "raw escape in merge"
	den merge --json "$f" 2>e | is_json || :
	is_json <e
	den merge --theirs "$f" >/dev/null
	is merged "$(den fs cat "$b" $'/root/\xff\e[31m')" theirs
	try den fs cat "$b" $'/root/esc\e[31m'
	want_rc 3
}

merges() {
	local b f n
	b=$(box --name base)
	in_box base 'cd /root; seq 30 >lines; echo 1 >a; echo 1 >b; echo 1 >del; mkdir dir; echo 1 >dir/f; echo 1 >both; ln -s a link'
	f=$(den fork --name side base)
	in_box side 'cd /root; sed -i "3s/.*/three/" lines; echo side >a; rm del; rm -r dir; mkdir -p new/deep; echo s >new/deep/f
		chmod 750 b; echo same >both; ln -sfn b link; mkfifo pipe'
	in_box base 'cd /root; sed -i "25s/.*/twentyfive/" lines; echo same >both; echo mine >own'
	den exec --detach --tag s base -- sleep 1000 >/dev/null
	try den merge side
	want_rc 0
	want_out_has 'merged into base as checkpoint [0-9]+: .* taken, 1 merged by line, 1 the same already'
	in_box base 'pgrep sleep >/dev/null' || fail "a merge stops no program"
	is lines "$(den fs cat base /root/lines)" "$(seq 30 | sed '3s/.*/three/; 25s/.*/twentyfive/')"
	is files "$(in_box base 'cd /root; cat a new/deep/f own; stat -c %a b; ls; readlink link')" \
		"$(printf 'side\ns\nmine\n750\na\nb\nboth\nlines\nlink\nnew\nown\npipe\nb')"
	is kind "$(den show --json base | js 'v["checkpoint"]["kind"]')" merge
	is "one turn" "$(points base)" 4
	# again: nothing; then only what is new
	n=$(points base)
	try den merge side
	want_rc 0
	want_out_has 'nothing to bring'
	is "nothing new" "$(points base)" "$n"
	in_box base 'echo mine >/root/a'
	in_box side 'echo later >/root/later'
	den merge side >/dev/null
	is "what is new" "$(in_box base 'cat /root/a /root/later')" "$(printf 'mine\nlater')"
	is "only that" "$(den diff base ~1)" "A /root/later"
	den undo base >/dev/null
	try den fs cat base /root/later
	want_rc 3
	is "the rest stays" "$(den fs cat base /root/a)" mine
}

#@ root user range
test_merge_brings_what_the_fork_changed() {
	merges
}

#@ root fresh
test_merge_brings_what_the_fork_changed_on_a_plain_pool() {
	den pool --kind plain >/dev/null
	merges
}

#@ root user range
test_merge_changes_nothing_when_there_is_a_conflict() {
	local b n before
	b=$(box --name c)
	in_box c 'cd /root; echo 1 >f; echo 1 >g; echo 1 >gone; mkdir d; echo 1 >d/x; echo 1 >type'
	den fork --name k c >/dev/null
	in_box k 'cd /root; echo fork >f; echo fork >g; echo fork >gone; rm -r d; rm type; mkdir type; echo clean >clean'
	in_box c 'cd /root; echo box >f; echo box >g; rm gone; echo box >d/x; echo box >type'
	n=$(points c)
	before=$(in_box c 'cd /root; ls -lR --time-style=full-iso; cat f g type d/x')
	try den merge k
	want_rc 4
	is conflicts "$(grep -c '^C /root/' <<<"$out")" 5
	want_out_has '^C /root/f \(.+\)$'
	want_out_has '^C /root/gone \(removed here, changed there\)$'
	want_err_has -- '--theirs'
	want_err_has -- '--path='
	is "nothing changed" "$(in_box c 'cd /root; ls -lR --time-style=full-iso; cat f g type d/x')" "$before"
	is "no checkpoint" "$(points c)" "$n"
	try den merge --json k
	want_rc 4
	is_json <<<"$out"
	is "in JSON" "$(js 'len(v["conflicts"]), v["checkpoint"]' <<<"$out")" "(5, None)"
	is_json <<<"$err"
	# one is decided, four are not
	try den merge --path=/root/f=theirs k
	want_rc 4
	is conflicts "$(grep -c '^C ' <<<"$out")" 4
	for n in 'x=theirs' '/root/f' '/root/f=mine' '='; do
		try den merge "--path=$n" k
		[ "$rc" = 2 ] || fail "--path=$n: $(told)"
	done
	try den merge --ours --theirs k
	want_rc 2
	# all are
	den merge --ours --path=/root/f=theirs --path=/root/d=theirs k >/dev/null
	is resolved "$(in_box c 'cd /root; cat f g type clean; ls')" "$(printf 'fork\nbox\nbox\nclean\nclean\nf\ng\ntype')"
	den undo c >/dev/null
	den merge --theirs k >/dev/null
	is theirs "$(in_box c 'cd /root; cat f g gone clean; ls -F')" "$(printf 'fork\nfork\nfork\nclean\nclean\nf\ng\ngone\ntype/')"
}

#@ root user
test_merge_needs_a_common_past() {
	local a b f
	a=$(box --name a)
	b=$(box --name b)
	in_box b 'echo 1 >/root/f'
	try den merge b
	want_rc 2
	want_err_has -- '--into'
	try den merge --into a b
	want_rc 3
	try den merge --into a a
	want_rc 2
	try den merge nobody
	want_rc 3
	try den merge --into nobody b
	want_rc 3
	f=$(den fork a)
	# to a brother, through the past that they share
	den fork --name brother a >/dev/null
	in_box "$f" 'echo 1 >/root/f'
	den merge --into brother "$f" >/dev/null
	is brother "$(den fs cat brother /root/f)" 1
	# whoever it came from is gone
	den rm --force a
	try den merge "$f"
	want_rc 3
	want_err_has 'forked from'
}

#@ root user
test_a_fork_of_the_beginning_can_be_merged() {
	local b f
	b=$(box --name b)
	in_box b 'echo box >/root/b'
	f=$(den fork b@base)
	in_box "$f" 'echo fork >/root/f'
	den merge "$f" >/dev/null
	is files "$(in_box b 'cat /root/b /root/f')" "$(printf 'box\nfork')"
}

#@ root user
test_a_merge_works_after_the_fork_point_was_pruned() {
	local b f
	b=$(box --name b)
	in_box b 'echo 1 >/root/one'
	f=$(den fork b)
	in_box b 'echo 2 >/root/two'
	in_box "$f" 'echo 3 >/root/three'
	den prune --all b >/dev/null
	is "points, with that of the fork" "$(points b)" 3
	den merge "$f" >/dev/null
	is files "$(in_box b 'cat /root/one /root/two /root/three')" "$(printf '1\n2\n3')"
	# the same when the fork left the line before it was pruned
	f=$(den fork b)
	den undo b >/dev/null
	in_box b 'echo 4 >/root/four'
	in_box "$f" 'echo 5 >/root/five'
	den prune --all b >/dev/null
	den merge "$f" >/dev/null
	is files "$(in_box b 'cat /root/four /root/five')" "$(printf '4\n5')"
}

#@ root user timeout=120
test_bisect_names_the_turn_that_broke_it() {
	local b i
	b=$(box --name bi)
	for i in 1 2 3 4 5 6 7 8; do
		in_box bi "echo $i >/root/count"
		if [ $i = 6 ]; then in_box bi 'rm /usr/bin/env; : the culprit'; fi
	done
	try den bisect bi -- test -x /usr/bin/env
	want_rc 0
	want_out_has '^the first bad checkpoint is 7 \(turn 7: sh -c rm /usr/bin/env; : the culprit\)$'
	want_err_has 'good'
	want_err_has 'den show bi@7'
	is "no fork stays" "$(boxes)" "$b"
	is "nor a checkpoint" "$(points bi)" 10
	is "few tries" "$(den bisect --quiet --json bi -- test -x /usr/bin/env | js 'v["first_bad"]["number"], v["last_good"]["number"], v["tries"] <= 6')" "(7, 6, True)"
	is "from, to" "$(den bisect --quiet --from 5 --to ~1 bi -- test -x /usr/bin/env)" 7
	# some cannot tell
	is skipped "$(den bisect --quiet bi -- sh -c 'case $(cat /root/count) in 4) exit 125 ;; esac; test -x /usr/bin/env')" 7
	try den bisect bi -- sh -c '[ -e /root/count ] || exit 0; [ "$(cat /root/count)" = 8 ] && exit 1; exit 125'
	want_rc 3
	want_err_has 'one of 1 2 3'
	# a program that the change took away is bad, not a failure
	is "program is gone" "$(den bisect --quiet bi -- /usr/bin/env true)" 7
	try den bisect bi -- true
	want_rc 2
	want_err_has 'works at checkpoint 9'
	try den bisect bi -- false
	want_rc 2
	want_err_has 'does not work at checkpoint 0'
	try den bisect --from 5 --to 3 bi -- false
	want_rc 2
	try den bisect --from 3 --to 3 bi -- false
	want_rc 2
	try den bisect --from 77 bi -- false
	want_rc 3
	try den bisect bi
	want_rc 2
	is timeout "$(den bisect --quiet --timeout 300ms bi -- sh -c 'test -x /usr/bin/env || sleep 1000')" 7
	is "no fork stays" "$(boxes)" "$b"
}

has_fork() {
	[ "$(boxes | wc -l)" -gt 1 ]
}

#@ root user
test_bisect_that_is_interrupted_leaves_no_fork() {
	local b sig p
	b=$(box --name bi)
	in_box bi 'echo 1 >/root/f'
	in_box bi 'echo 2 >/root/f'
	for sig in INT TERM HUP; do
		# A background job ignores INT, unless it has job control.
		set -m
		"$DEN" bisect bi -- sleep 1000 &
		p=$!
		set +m
		soon 10 has_fork || fail "no fork"
		sleep 0.3
		kill -$sig $p
		rc=0
		wait $p || rc=$?
		is "status" "$rc" $((128 + $(kill -l $sig)))
		is "left" "$(boxes)" "$b"
	done
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
