# Forks, merging them back, and bisection.

source "$TESTS/kit_history.sh"

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

merges() {
	local b f n
	b=$(box --name base)
	in_box base 'cd /root; seq 30 >lines; echo 1 >a; echo 1 >b; echo 1 >del; mkdir dir; echo 1 >dir/f; echo 1 >both; ln -s a link'
	f=$(den fork --name side base)
	# behind gVisor a named pipe is in the box's own kernel alone: there it is a file
	in_box side "cd /root; sed -i '3s/.*/three/' lines; echo side >a; rm del; rm -r dir; mkdir -p new/deep; echo s >new/deep/f
		chmod 750 b; echo same >both; ln -sfn b link; $([ "${DEN_WALL:-}" = gvisor ] && echo touch || echo mkfifo) pipe"
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

# attributes BOX PROGRAM: in the box, with these at hand
attributes() {
	den exec "$1" -- /usr/bin/python3 -ISBc '
import os, struct, sys
cap = lambda n: struct.pack("<5I", 0x02000001, 1 << n, 0, 0, 0)
def acl(perm, user=1000):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in (
        (1, 7, 2**32 - 1), (2, perm, user), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 0, 2**32 - 1)))
def told():
    for p in ("/root/d", "/root/dd", "/root/prog", "/root/text", "/root/dd/in", "/srv/new"):
        if os.path.exists(p):
            print(p, oct(os.stat(p).st_mode), sorted((k, os.getxattr(p, k).hex()) for k in os.listxattr(p)))
A, D, C = "system.posix_acl_access", "system.posix_acl_default", "security.capability"
exec(sys.argv[1])' "$2"
}

merges_attributes() {
	local user=${1:-1000} fork box
	box --name a >/dev/null
	attributes a 'os.mkdir("/root/d"); os.mkdir("/root/dd"); os.setxattr("/root/d", "user.gone", b"1")
os.setxattr("/root/d", "user.stays", b"1"); open("/root/prog", "w").write("#!/bin/sh\n"); open("/root/text", "w").write("1\n2\n3\n4\n5\n")
os.setxattr("/root/text", A, acl(7)); os.setxattr("/root/prog", C, cap(10))' || fail "the box cannot set them"
	den fork --name f a >/dev/null
	attributes f 'os.removexattr("/root/d", "user.gone"); os.setxattr("/root/d", "user.new", b"2")
os.setxattr("/root/d", A, acl(5)); os.setxattr("/root/dd", D, acl(4)); open("/root/dd/in", "w").close()
os.setxattr("/root/prog", C, cap(13)); open("/root/text", "a").write("6\n"); os.removexattr("/root/text", A)
open("/srv/new", "w").close(); os.setxattr("/srv/new", C, cap(5)); os.setxattr("/srv/new", A, acl(6)); os.chmod("/srv/new", 0o750)'
	attributes a 'open("/root/text", "r+").write("one\n2\n")'
	try den merge --json f
	want_rc 0
	is "none is lost" "$(js 'v["lost_attributes"]' <<<"$out")" 0
	fork=$(attributes f told'()')
	box=$(attributes a told'()')
	is attributes "$box" "$fork"
	grep -q "security.capability', '01000002002" <<<"$box" || fail "no capability: $box"
	grep -q "posix_acl_default" <<<"$box" || fail "no default access list: $box"
	is "taken away again" "$(attributes f 'os.removexattr("/srv/new", C); os.removexattr("/root/dd", D); os.removexattr("/root/dd/in", A)'
		den merge f >/dev/null
		attributes a told'()')" "$(attributes f told'()')"
}

#@ root range
test_merge_takes_attributes_capabilities_and_access_lists() {
	merges_attributes
}

#@ root fresh
test_merge_takes_attributes_capabilities_and_access_lists_on_a_plain_pool() {
	den pool --kind plain >/dev/null
	merges_attributes
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
test_a_merge_finds_the_common_past_of_a_box_that_is_gone() {
	local n
	box --name a >/dev/null
	in_box a 'echo 1 >/root/one; echo old >/root/both'
	den fork --name b a >/dev/null
	in_box b 'echo 2 >/root/two'
	den fork --name c b >/dev/null
	in_box c 'echo 3 >/root/three; rm /root/one'
	in_box a 'echo new >/root/both'
	den rm --force b >/dev/null
	den gc >/dev/null 2>&1
	# what b had is in c alone; what they share is a's own checkpoint
	try den merge --into a c
	want_rc 0
	is files "$(in_box a 'cd /root; cat both two three; ls one 2>&1 | grep -c cannot')" "$(printf 'new\n2\n3\n1')"
	# and through two of them, the other way round
	den fork --name d c >/dev/null
	den fork --name e d >/dev/null
	den rm --force c d >/dev/null
	in_box a 'echo 5 >/root/five'
	try den merge --into e a
	want_rc 0
	is files "$(in_box e 'cd /root; cat both three five')" "$(printf 'new\n3\n5')"
	den rm --force a e >/dev/null
	den gc >/dev/null 2>&1
	n=$(/usr/bin/python3 -c '
import sqlite3, sys
print(sum(sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM " + t).fetchone()[0] for t in ("checkpoints", "past")))' "$DEN_STATE/den.db")
	is "rows that nobody needs" "$n" 0
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
	is timeout "$(den bisect --quiet --timeout $((300 * ${DEN_TEST_SLOW:-1} * ${DEN_TEST_SLOW:-1}))ms bi -- sh -c 'test -x /usr/bin/env || sleep 1000')" 7
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
