# What changed between two points of history: as a list, as text, as an archive.

source "$TESTS/kit_history.sh"

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
	# behind gVisor a named pipe is in the box's own kernel alone
	[ "${DEN_WALL:-}" != gvisor ] || sed -i '/pipe$/d' want
	# what a removed directory held, and what a changed type brings along, may be told or not
	grep -v -e '^D /root/gone/.' got | diff want -
	is "in order" "$(sed 's/^..//; s/ (.*//; s,/$,,' o | LC_ALL=C sort | md5sum)" "$(sed 's/^..//; s/ (.*//; s,/$,,' o | md5sum)"
	den diff --json "$b" before | is_json lines
	den diff --json "$b" before >o
	grep -q '"path":"/root/mode","kind":"meta","type":"file","changed":\["mode"\],"mode":"0751"' o || fail "$(cat o)"
	den diff --name-only "$b" before | diff - <(sed 's/^..//; s/ (.*//; s,/$,,' o2)
	# backwards it is the reverse
	den diff "$b" now before >o
	[ "${DEN_WALL:-}" = gvisor ] || grep -qx 'D /root/pipe' o
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
