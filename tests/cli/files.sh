# Files in, out and inside; what a box plants must not lead den astray.

#@ root user range
test_cp_carries_a_file_both_ways() {
	local b
	b=$(box)
	head -c 3000000 /dev/urandom >in
	chmod 751 in
	den cp in "$b:/root/f"
	is "in the box" "$(den exec "$b" -- sha256sum /root/f | cut -d' ' -f1)" "$(sum in)"
	is mode "$(den exec "$b" -- stat -c %a /root/f)" 751
	den cp "$b:/root/f" back
	cmp in back
	is mode "$(stat -c %a back)" 751
	den cp "$b:/root/f" .
	cmp in f
	den cp in "$b:/tmp"
	den exec "$b" -- test -f /tmp/in
	den cp in "$b:rel"
	den exec "$b" -- test -f /root/rel
}

#@ root user range
test_cp_carries_trees_with_links_and_modes() {
	local b
	b=$(box)
	mkdir -p t/a/b t/empty
	echo 1 >t/a/b/f
	ln -s a/b/f t/link
	ln -s /etc/passwd t/abs
	ln t/a/b/f t/hard
	chmod 700 t/a
	touch -d '2001-02-03 04:05:06' t/a/b/f
	den cp t "$b:/root/"
	try den exec "$b" -- sh -c 'cd /root/t && cat link && readlink abs && stat -c %a a && stat -c %Y a/b/f && [ -d empty ] && stat -c %h hard'
	want_rc 0
	want_out "$(printf '1\n/etc/passwd\n700\n%s\n2' "$(stat -c %Y t/a/b/f)")"
	den cp "$b:/root/t" back
	diff -r --no-dereference t back
	is "link" "$(readlink back/abs)" /etc/passwd
	is "mode" "$(stat -c %a back/a)" 700
}

test_cp_takes_and_gives_a_tar_stream() {
	local b
	b=$(box)
	mkdir t
	echo x >t/f
	tar cf - t | den cp - "$b:/root"
	is file "$(den exec "$b" -- cat /root/t/f)" x
	den cp "$b:/root/t" - >o.tar
	tar tf o.tar | grep -q 't/f$'
	is "file from tar" "$(tar xOf o.tar t/f)" x
}

#@ root user timeout=90
test_300_megabytes_need_no_memory() {
	local b k i most=0 kb p c
	b=$(box)
	k=$(field "$b" keeper_pid)
	i=$(field "$b" init_pid)
	head -c 314572800 /dev/zero | tr '\0' 'a' >in
	for p in up down; do
		if [ $p = up ]; then
			"$DEN" cp in "$b:/root/f" &
		else
			"$DEN" cp "$b:/root/f" back &
		fi
		c=$!
		while alive $c; do
			for p in $k $i $c; do
				kb=$(rss_kb $p)
				if [ "${kb:-0}" -gt $most ]; then most=$kb; fi
			done
			sleep 0.05
		done
		wait $c
	done
	cmp in back
	at_most "resident kilobytes" $most 40000
	at_least "resident kilobytes" $most 100
}

test_sparse_files_stay_sparse_both_ways() {
	local b disk
	b=$(box)
	mkdir t
	truncate -s 64M t/end t/middle t/hole
	echo end >>t/end
	printf x | dd of=t/middle bs=1M seek=20 conv=notrunc status=none
	head -c 10000 /dev/zero >t/small
	timeout $((50 * DEN_TEST_SLOW)) "$DEN" cp t "$b:/root/"
	# measured from outside: gVisor's kernel tells no holes
	disk=$(den stats --once --json "$b" | grep -o '"disk":[0-9]*')
	at_most "bytes of the box" "${disk#*:}" 8388608
	at_least "bytes of the box" "${disk#*:}" 8192
	den cp "$b:/root/t" back # as a tree,
	diff -r t back
	den cp "$b:/root/t/middle" middle # and file by file
	den cp "$b:/root/t/end" end
	cmp middle t/middle
	cmp end t/end
	at_most "KiB here" "$(du -skc back middle end | tail -n 1 | cut -f1)" 4096
}

odd_names() {
	printf '%s\0' $'new\nline' $'esc\e[31m' 'sp ace' $'bad\xff\xfeutf' '-dash' '*' '"q"' "$(printf 'x%.0s' $(seq 255))" 'back\slash' 'ü漢' '...' $'tab\t' '<script>'
}

#@ root user range
test_odd_names_pass_both_ways() {
	local b n
	b=$(box)
	mkdir t
	odd_names | while IFS= read -rd '' n; do echo "content $n" >"t/$n"; done
	den cp t "$b:/root/"
	den cp "$b:/root/t" back
	diff -r t back
	(cd t && find . -type f -print0 | sort -z) >want
	den exec "$b" -- sh -c 'cd /root/t && find . -type f -print0' | sort -z >got
	cmp want got
	while IFS= read -rd '' n; do
		den fs cat "$b" "/root/t/$n" >o
		cmp o "t/$n"
		den fs rm "$b" "/root/t/$n"
	done < <(odd_names)
	is "left" "$(den exec "$b" -- find /root/t -type f)" ""
}

#@ root user
test_odd_names_do_no_harm_in_listings() {
	local b n
	b=$(box)
	mkdir t
	odd_names | while IFS= read -rd '' n; do echo x >"t/$n"; done
	den cp t "$b:/root/"
	den fs ls "$b" /root/t >o
	not grep -q $'\e' o || fail "raw escape in a listing"
	is "lines" "$(wc -l <o)" "$(odd_names | tr -cd '\0' | wc -c)"
	den fs ls --json "$b" /root/t | is_json lines
	den exec --detach --tag x "$b" -- sh -c 'sleep 1000' $'\e[31mred\nline' $'\xff'
	den ps "$b" >o
	not grep -q $'\e' o || fail "raw escape in ps"
	den ps --json "$b" | is_json
	# A program names itself, and its files, at will.
	den exec "$b" -- sh -c 'cp /usr/bin/sleep "$(printf "/tmp/\033[31mx\ny")"; "$(printf "/tmp/\033[31mx\ny")" 1000 >/dev/null 2>&1 &'
	sleep 0.3
	den ps "$b" >o
	not grep -q $'\e' o || fail "raw escape in ps"
	den ps --json "$b" | is_json
	den inspect "$b" >o
	not grep -q $'\e' o
}

test_long_paths_work() {
	local b p i
	b=$(box)
	p=/root
	for i in $(seq 15); do p=$p/$(printf 'd%.0s' $(seq 250)); done
	echo deep | den fs write --parents "$b" "$p/f"
	is content "$(den fs cat "$b" "$p/f")" deep
	try den fs cat "$b" "/$(printf 'x%.0s' $(seq 256))"
	[ "$rc" != 0 ] || fail "a name of 256 bytes"
	try den fs cat "$b" "$(printf '/abc%.0s' $(seq 3000))"
	[ "$rc" != 0 ] || fail "a path of 12,000 bytes"
	# Deeper than any path may be long: made step by step, and deletion must still work.
	den exec "$b" -- /usr/bin/python3 -c '
import os
os.chdir("/root")
for i in range(60):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("bottom", "w").close()'
	den fs rm --recursive "$b" "/root/$(printf 'd%.0s' $(seq 200))"
	den exec "$b" -- /usr/bin/python3 -c '
import os
os.chdir("/root")
for i in range(60):
    os.mkdir("e" * 200)
    os.chdir("e" * 200)
open("bottom", "w").close()'
	den rm --force "$b"
}

#@ root user range
test_fs_does_what_it_says() {
	local b
	b=$(box)
	echo hello | den fs write "$b" /root/f
	is cat "$(den fs cat "$b" /root/f)" hello
	is mode "$(den exec "$b" -- stat -c '%a %U' /root/f)" "644 root"
	try den fs mkdir "$b" /root/a/b
	want_rc 3
	den fs mkdir --parents "$b" /root/a/b
	try den fs mkdir "$b" /root/a/b
	want_rc 4
	den fs mv "$b" /root/f /root/a/b/g
	try den fs cat "$b" /root/f
	want_rc 3
	is moved "$(den fs cat "$b" /root/a/b/g)" hello
	den fs chmod "$b" 600 /root/a/b/g
	is mode "$(den exec "$b" -- stat -c %a /root/a/b/g)" 600
	den fs stat --json "$b" /root/a/b/g | grep -q '"mode": *"0600"'
	try den fs rm "$b" /root/a
	want_rc 4
	den fs rm --recursive "$b" /root/a
	try den fs stat "$b" /root/a
	want_rc 3
	try den fs ls "$b" /etc/passwd
	[ "$rc" != 0 ] || fail "listing a file"
	try den fs cat "$b" /etc
	[ "$rc" != 0 ] || fail "reading a directory"
}

#@ root range
test_fs_acts_with_the_users_rights() {
	local b
	b=$(box)
	try sh -c 'echo x | "$DEN" fs write --user user "$0" /root/f' "$b"
	want_rc 5
	try den fs cat --user user "$b" /etc/shadow
	want_rc 5
	echo x | den fs write --user user "$b" /home/user/f
	is owner "$(den exec "$b" -- stat -c %U /home/user/f)" user
	den fs chown "$b" root /home/user/f
	is owner "$(den exec "$b" -- stat -c %U /home/user/f)" root
}

test_lists_go_as_deep_as_asked() {
	local b
	b=$(box)
	den exec "$b" -- sh -c 'mkdir -p /root/a/b/c && touch /root/a/1 /root/a/b/2 /root/a/b/c/3 && ln -s / /root/a/loop'
	is "depth 1" "$(den fs ls --json "$b" /root/a | wc -l)" 3
	is "depth 2" "$(den fs ls --depth 2 --json "$b" /root/a | wc -l)" 5
	is "depth 9" "$(den fs ls --depth 9 --json "$b" /root/a | wc -l)" 6
}

same_listing() {
	[ "$(den exec "$1" -- ls -A /root)" = "$2" ]
}

#@ root user
test_an_atomic_write_is_seen_whole_or_not_at_all() {
	local b p before
	b=$(box)
	echo old | den fs write --atomic "$b" /root/f
	before=$(den exec "$b" -- ls -A /root)
	mkfifo slow
	"$DEN" fs write --atomic "$b" /root/f <slow &
	p=$!
	exec 7>slow
	head -c 100000 /dev/zero >&7
	sleep 0.5
	is "while it is written" "$(den fs cat "$b" /root/f)" old
	# Its sender dies: nothing half may stay.
	kill -KILL $p
	exec 7>&-
	wait $p || :
	soon 5 same_listing "$b" "$before" || fail "a temporary file stayed: $(den exec "$b" -- ls -A /root)"
	is "after a broken write" "$(den fs cat "$b" /root/f)" old
	echo new | den fs write --atomic "$b" /root/f
	is "after a whole write" "$(den fs cat "$b" /root/f)" new
}

#@ root user
test_watch_tells_what_changes() {
	local b p
	b=$(box)
	den exec "$b" -- mkdir -p /root/w/sub
	timeout 30 "$DEN" fs watch --recursive --json "$b" /root/w >o &
	p=$!
	soon 10 grep -q ready o
	is_json lines <o
	den exec "$b" -- sh -c 'cd /root/w; echo 1 >new; mv new moved; echo 2 >sub/deep; rm moved; mkdir sub/later; sleep 0.2; echo 3 >sub/later/f'
	soon 10 grep -q 'sub/later/f' o || fail "not told: $(cat o)"
	local w
	for w in create write remove rename; do grep -q "\"$w\"" o || fail "no $w: $(cat o)"; done
	grep -q 'sub/deep' o
	kill $p
	wait $p || :
}

# A link in the box means what it means in the box.
#@ root user range
test_links_planted_in_the_box_show_the_boxs_files() {
	local b host
	b=$(box)
	host=$TMP/secret
	echo host-secret >"$host"
	den exec "$b" -- sh -c "ln -s $host /root/l; ln -s /etc/hostname /root/h; ln -s ../../../../../../../../..$host /root/up; ln -s /proc/1/root$host /root/proc; ln -s /proc/self/root$host /root/self"
	local l
	for l in l up proc self; do
		try den fs cat "$b" "/root/$l"
		[ "$rc" != 0 ] || fail "$l was followed"
		not grep -q host-secret <<<"$out$err"
		try den cp "$b:/root/$l" "got-$l"
		if [ -e "got-$l" ] && [ ! -L "got-$l" ]; then
			not grep -q host-secret "got-$l" || fail "$l gave a host file"
		fi
		rm -f "got-$l"
	done
	is "the box's own" "$(den fs cat "$b" /root/h)" "$(den exec "$b" -- cat /etc/hostname)"
	# Writing through one, too.
	try sh -c 'echo pwned | "$DEN" fs write "$0" /root/l' "$b"
	is "host file" "$(cat "$host")" host-secret
	try den cp in-nothing "$b:/root/l/x"
	is "host file" "$(cat "$host")" host-secret
}

# The tree that comes out may hold a link where a directory was when it was looked at.
#@ root user
test_cp_out_never_writes_outside_its_target() {
	local b
	b=$(box)
	mkdir victim out
	echo untouched >victim/f
	den exec "$b" -- sh -c "mkdir -p /root/t/real; echo pwned >/root/t/real/f; ln -s $TMP/victim /root/t/link"
	den cp "$b:/root/t" out/
	is victim "$(cat victim/f)" untouched
	# Copying again over what is there: the planted link must not be followed.
	den exec "$b" -- sh -c 'cd /root/t && rm link && mkdir link && echo pwned >link/f && echo pwned >link/g'
	try den cp "$b:/root/t" out/
	is victim "$(cat victim/f)" untouched
	[ ! -e victim/g ] || fail "wrote through a link that an earlier copy brought"
	# The same with a file: an existing link as the target's last part.
	ln -sf "$TMP/victim/f" out/t/planted
	den exec "$b" -- sh -c 'echo pwned >/root/t/planted'
	try den cp "$b:/root/t" out/
	is victim "$(cat victim/f)" untouched
}

#@ root user
test_cp_out_of_a_racing_tree_never_writes_outside() {
	local b i
	b=$(box)
	mkdir victim
	echo untouched >victim/f
	den exec "$b" -- sh -c "mkdir -p /root/t/d; echo pwned >/root/t/d/f; echo pwned >/root/t/d/g; ln -s $TMP/victim /root/t/e; ln -s /etc /root/t/z"
	den exec --detach "$b" -- /attacks/attack-race /root/t/d /root/t/e 20
	for i in $(seq 60); do
		mkdir out
		timeout 10 "$DEN" cp "$b:/root/t" out/ >/dev/null 2>&1 || [ $? != 124 ] || fail hangs
		rm -rf out
	done
	# Over the same target, so that an earlier copy's link meets a later one's directory.
	mkdir out
	for i in $(seq 60); do
		timeout 10 "$DEN" cp "$b:/root/t" out/ >/dev/null 2>&1 || [ $? != 124 ] || fail hangs
	done
	is victim "$(cat victim/f)" untouched
	is "files of victim" "$(ls victim)" f
}

#@ root user
test_writing_into_a_racing_tree_stays_inside() {
	local b i
	b=$(box)
	mkdir victim
	echo untouched >victim/f
	den exec "$b" -- sh -c "mkdir -p /root/t/d; echo x >/root/t/d/f; ln -s $TMP/victim /root/t/e"
	den exec --detach "$b" -- /attacks/attack-race /root/t/d /root/t/e 15
	for i in $(seq 50); do
		echo pwned | timeout 10 "$DEN" fs write "$b" /root/t/d/f >/dev/null 2>&1 || [ $? != 124 ]
		timeout 10 "$DEN" fs rm "$b" /root/t/d/f >/dev/null 2>&1 || [ $? != 124 ]
		timeout 10 "$DEN" fs chmod --recursive "$b" 777 /root/t >/dev/null 2>&1 || [ $? != 124 ]
	done
	is victim "$(cat victim/f)" untouched
	is "mode of victim" "$(stat -c %a victim/f)" 644
}

hostile_tar() {
	/usr/bin/python3 - "$1" <<'PY'
import io, sys, tarfile
t = tarfile.open(sys.argv[1], "w", format=tarfile.PAX_FORMAT)
def add(name, data=b"pwned\n", **kw):
    i = tarfile.TarInfo(name)
    i.size = len(data) if kw.get("type", tarfile.REGTYPE) == tarfile.REGTYPE else 0
    for k, v in kw.items(): setattr(i, k, v)
    t.addfile(i, io.BytesIO(data))
add("good")
add("../escaped")
add("a/../../escaped2")
add("/absolute")
add("link", type=tarfile.SYMTYPE, linkname="/etc")
add("link/through")
add("hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")
add("hard2", type=tarfile.LNKTYPE, linkname="../../etc/passwd")
add("setuid", mode=0o6755)
add("fifo", type=tarfile.FIFOTYPE)
add("device", type=tarfile.BLKTYPE, devmajor=8, devminor=0)
t.close()
PY
}

#@ root user
test_a_hostile_archive_stays_below_its_target() {
	local b n
	b=$(box)
	den exec "$b" -- mkdir -p /root/deep/target
	hostile_tar h.tar
	# Refusing it as a whole is as good as skipping the bad entries.
	timeout 20 "$DEN" cp - "$b:/root/deep/target" <h.tar >o 2>&1 || [ $? != 124 ] || fail hangs
	for n in /root/deep/escaped /root/escaped /root/deep/escaped2 /root/escaped2 /absolute /etc/through /escaped; do
		try den exec "$b" -- test -e $n
		want_rc 1
	done
	try den exec "$b" -- test -b /root/deep/target/device
	want_rc 1
	[ ! -e /absolute ] && [ ! -e /etc/through ] || fail "it reached the host"
	# Each entry alone, so that one refusal cannot hide the others.
	/usr/bin/python3 - <<'PY'
import tarfile
src = tarfile.open("h.tar")
for k, m in enumerate(src.getmembers()):
    with tarfile.open("one%d.tar" % k, "w") as t:
        if m.name == "link/through":
            t.addfile(src.getmember("link"))
        t.addfile(m, src.extractfile(m) if m.isreg() else None)
PY
	for n in one*.tar; do
		timeout 20 "$DEN" cp - "$b:/root/deep/target" <"$n" >o 2>&1 || [ $? != 124 ] || fail hangs
	done
	for n in /root/deep/escaped /root/escaped /root/deep/escaped2 /root/escaped2 /absolute /etc/through /escaped; do
		try den exec "$b" -- test -e $n
		want_rc 1
	done
	den exec "$b" -- test -f /root/deep/target/good
}

test_a_broken_archive_is_refused() {
	local b
	b=$(box)
	head -c 10000 /dev/urandom >junk
	try sh -c '"$DEN" cp - "$0:/root" <junk' "$b"
	[ "$rc" != 0 ] || fail "junk is taken for an archive"
	mkdir t
	head -c 100000 /dev/urandom >t/f
	tar cf t.tar t
	head -c 50000 t.tar >cut.tar
	try sh -c '"$DEN" cp - "$0:/root" <cut.tar' "$b"
	[ "$rc" != 0 ] || fail "half an archive is taken for a whole one"
	den exec "$b" -- true
}

#@ root user
test_special_files_do_not_hang_or_harm() {
	local b
	b=$(box)
	den exec "$b" -- sh -c 'mkdir /root/t; mkfifo /root/t/fifo; echo x >/root/t/f; cp /usr/bin/id /root/t/suid; chmod 6755 /root/t/suid; chmod 1777 /root/t'
	timeout 10 "$DEN" cp "$b:/root/t" out >o 2>&1 || [ $? != 124 ] || fail "a fifo hangs cp"
	is "file beside it" "$(cat out/f)" x
	[ "$(stat -c %a out/suid)" = 755 ] || fail "a setuid program came out with mode $(stat -c %a out/suid)"
	[ ! -p out/fifo ] || [ "$(stat -c %a out/fifo)" != 6755 ]
	rc=0
	timeout 10 "$DEN" fs cat "$b" /root/t/fifo >/dev/null 2>e || rc=$?
	[ $rc != 124 ] && [ $rc != 0 ] || fail "reading a fifo: status $rc"
	rc=0
	timeout 10 "$DEN" cp "$b:/root/t/fifo" got >/dev/null 2>&1 || rc=$?
	[ $rc != 124 ] || fail "a fifo hangs cp"
	rc=0
	timeout 10 sh -c 'echo x | "$DEN" fs write "$0" /root/t/fifo' "$b" >/dev/null 2>&1 || rc=$?
	[ $rc != 124 ] || fail "writing to a fifo hangs"
	rc=0
	timeout 10 "$DEN" fs cat --length 100 "$b" /dev/zero >o 2>&1 || rc=$?
	[ $rc != 124 ] || fail "a device hangs"
	mkdir tree
	mkfifo tree/fifo
	echo y >tree/z
	rc=0
	timeout 10 "$DEN" cp tree "$b:/root/x" >/dev/null 2>&1 || rc=$?
	[ $rc != 124 ] || fail "a fifo in a tree of the host hangs cp"
	is "file beside it" "$(den fs cat "$b" /root/x/z)" y
}

#@ root user range
test_a_read_only_mount_refuses_writes_cleanly() {
	local b
	mkdir d
	b=$(box --mount "$PWD/d:/ro:ro")
	echo x >in
	try den cp in "$b:/ro/in"
	[ "$rc" != 0 ] || fail "written"
	want_err_has 'read-only|denied|permitted'
	try sh -c 'echo x | "$DEN" fs write "$0" /ro/f' "$b"
	[ "$rc" != 0 ]
	is "files" "$(ls d)" ""
}

test_missing_files_say_so() {
	local b
	b=$(box)
	try den cp "$b:/no/such" out
	want_rc 3
	want_err_has '/no/such'
	try den cp no-such-file "$b:/root/"
	want_rc 3
	want_err_has no-such-file
	try den cp "$b:/etc/passwd" /no/such/dir/x
	[ "$rc" != 0 ]
	try den cp a b
	want_rc 2
	try den cp "nobox:/x" .
	want_rc 3
	try den fs cat "$b" /no/such
	want_rc 3
}

test_files_can_be_read_in_a_stopped_box_or_are_refused_plainly() {
	local b
	b=$(box)
	echo x | den fs write "$b" /root/f
	den stop "$b"
	try den fs cat "$b" /root/f
	if [ "$rc" = 0 ]; then
		want_out x
	else
		want_rc 4
		want_err_has start
	fi
}

test_a_range_of_a_file_can_be_read() {
	local b
	b=$(box)
	printf 0123456789 | den fs write "$b" /root/f
	is range "$(den fs cat --offset 3 --length 4 "$b" /root/f)" 3456
	is "to the end" "$(den fs cat --offset 8 "$b" /root/f)" 89
	is "beyond" "$(den fs cat --offset 100 "$b" /root/f)" ""
}
