# Extended attributes, and where links lead.

server() {
	"$PROGRAMS/server" "$@"
}

#@ root user range
test_a_write_sets_extended_attributes_and_replaces_those_it_names() {
	local b mode
	b=$(box)
	for mode in "" "@"; do # in place, and atomically
		echo one | server write "$b" /f "${mode}user.m." user.m.a=1 "user.m.b=two words=x"
		is stat "$(server stat "$b" /f user.m.)" \
			"/f file mode=644 size=4 real=- target=- [user.m.a=1] [user.m.b=two words=x]"
		den exec "$b" -- python3 -c 'import os; os.setxattr("/f", "user.other", b"stays")'
		echo longer | server write "$b" /f "${mode}user.m." user.m.c=3
		is stat "$(server stat "$b" /f user.m.)" "/f file mode=644 size=7 real=- target=- [user.m.c=3]"
		is others "$(server stat "$b" /f user.other)" "/f file mode=644 size=7 real=- target=- [user.other=stays]"
		echo plain | server write "$b" /f "${mode}-" # without a prefix they are left alone
		is stat "$(server stat "$b" /f user.m.)" "/f file mode=644 size=6 real=- target=- [user.m.c=3]"
		echo none | server write "$b" /f "${mode}user.m."
		is stat "$(server stat "$b" /f user.m.)" "/f file mode=644 size=5 real=- target=-"
		den fs rm "$b" /f
	done
}

#@ root user
test_extended_attributes_are_the_users_alone() {
	local b
	b=$(box)
	for prefix in trusted. security. system. user us; do
		try server stat "$b" /etc/passwd "$prefix"
		want_rc 1
		want_err_has "^invalid: .*begins with 'user.'"
	done
	try server write "$b" /f user.m. user.n.a=1 </dev/null
	want_rc 1
	want_err_has 'user.m.NAME=VALUE'
	try den exec "$b" -- test -e /f
	want_rc 1
	# any bytes: what has a NUL is left out, what is too long for a record too
	den exec "$b" -- python3 -c '
import os
open("/g", "w").close()
os.setxattr("/g", "user.nul", b"a\0b")
os.setxattr("/g", "user.esc", b"\x1b[31m")
os.setxattr("/g", "user.ok", b"yes")'
	server stat "$b" /g user. | grep -q 'user.ok=yes' || fail "$(server stat "$b" /g user.)"
	not grep -q user.nul <<<"$(server stat "$b" /g user.)"
}

#@ root user range
test_links_tell_where_they_lead() {
	local b
	b=$(box)
	den exec "$b" -- sh -c 'mkdir -p /t/d; cd /t; printf 12345 >d/f; ln -s d/f one; ln -s one two; ln -s gone three; ln -s d four'
	is "not followed" "$(server list "$b" /t -)" "d directory mode=755 size=$(den fs stat --json "$b" /t/d | size) real=- target=-
four symlink mode=777 size=1 real=/t/d target=d
one symlink mode=777 size=3 real=/t/d/f target=d/f
three symlink mode=777 size=4 real=- target=gone
two symlink mode=777 size=3 real=/t/d/f target=one"
	is "followed" "$(server list "$b" /t @- | grep -v '^d \|^four')" "one link+file mode=644 size=5 real=/t/d/f target=-
three symlink mode=777 size=4 real=- target=gone
two link+file mode=644 size=5 real=/t/d/f target=-"
	is "stat follows" "$(server stat "$b" /t/two -)" "/t/two link+file mode=644 size=5 real=/t/d/f target=-"
	is "or not" "$(server stat "$b" /t/two @-)" "/t/two symlink mode=777 size=3 real=/t/d/f target=one"
	try server stat "$b" /t/three -
	want_rc 1
	want_err_has '^not_found: '
}

size() {
	/usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["size"])'
}
