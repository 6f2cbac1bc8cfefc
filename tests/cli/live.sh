# Several who watch one program at once, and write to it.

server() {
	"$PROGRAMS/server" "$@"
}

has() {
	grep -q -- "$2" "$1"
}

#@ root user range
test_several_watch_a_program_and_write_to_it() {
	local b keeper
	b=$(box)
	den exec --detach --tty --tag sh "$b" -- sh >/dev/null
	mkfifo "$TMP/in1" "$TMP/in2"
	server live "$b" sh <"$TMP/in1" >"$TMP/out1" 2>"$TMP/err1" &
	server live "$b" sh <"$TMP/in2" >"$TMP/out2" 2>"$TMP/err2" &
	exec 7>"$TMP/in1" 8>"$TMP/in2"
	soon 5 has "$TMP/err1" started
	soon 5 has "$TMP/err2" started
	echo 'echo one-$((1+1))' >&7
	soon 5 has "$TMP/out1" one-2 || fail "not to the writer"
	soon 5 has "$TMP/out2" one-2 || fail "not to the other"
	echo 'echo two-$((1+2))' >&8
	soon 5 has "$TMP/out1" two-3 || fail "the second could not write"
	server size "$b" sh 11 77 2>/dev/null # a third one
	echo 'stty size' >&7
	soon 5 has "$TMP/out2" '11 77' || fail "not resized"
	# they go on under another keeper
	keeper=$(field "$b" keeper_pid)
	kill -9 "$keeper"
	soon 5 dead "$keeper"
	sleep 0.5
	echo 'echo three-$((1+3))' >&8
	soon 5 has "$TMP/out1" three-4 || fail "lost with the keeper"
	echo 'exit 3' >&7
	soon 5 has "$TMP/err1" 'status 3'
	soon 5 has "$TMP/err2" 'status 3'
	exec 7>&- 8>&-
	is "lost by the first" "$(grep lost "$TMP/err1")" "lost 0"
	# whoever came first may have seen the first prompt
	cmp <(sed -n '/^one-2/,$p' "$TMP/out1") <(sed -n '/^one-2/,$p' "$TMP/out2") || fail "they saw different things"
}

#@ root user
test_who_attaches_live_sees_what_comes_and_nothing_from_before() {
	local b
	b=$(box)
	den exec --detach --tag two "$b" -- sh -c 'echo before; while [ ! -e /go ]; do sleep 0.05; done; echo after' >/dev/null
	soon 5 den_logged "$b" two before
	server live "$b" two </dev/null >"$TMP/out" 2>"$TMP/err" &
	soon 5 has "$TMP/err" started
	den exec "$b" -- touch /go
	soon 5 has "$TMP/err" 'status 0'
	is output "$(cat "$TMP/out")" after
	is lost "$(grep lost "$TMP/err")" "lost 0"
	# of one that has ended, how
	server live "$b" two </dev/null >"$TMP/out" 2>"$TMP/err"
	is output "$(cat "$TMP/out")" ""
	has "$TMP/err" 'status 0' || fail "$(cat "$TMP/err")"
	try server live "$b" no-such-tag
	want_rc 1
	want_err_has '^not_found: '
}

den_logged() {
	"$DEN" logs "$1" "$2" | grep -q "$3"
}

#@ root user timeout=90
test_a_slow_watcher_stalls_nobody_and_is_told_what_it_lost() {
	local b got lost
	b=$(box)
	den exec --detach --tag flood "$b" -- sh -c \
		'while [ ! -e /go ]; do sleep 0.05; done; head -c 30000000 /dev/zero | tr "\0" x; echo >/done' >/dev/null
	server live "$b" flood --slow 100 </dev/null >"$TMP/slow" 2>"$TMP/slow.err" &
	server live "$b" flood </dev/null >"$TMP/quick" 2>"$TMP/quick.err" &
	soon 5 has "$TMP/slow.err" started
	soon 5 has "$TMP/quick.err" started
	den exec "$b" -- touch /go
	soon 10 den exec "$b" -- test -e /done || fail "the program waits for a slow watcher"
	soon 30 has "$TMP/slow.err" 'status 0' || fail "the slow one never ends"
	soon 5 has "$TMP/quick.err" 'status 0'
	got=$(stat -c %s "$TMP/slow")
	lost=$(sed -n 's/^lost //p' "$TMP/slow.err")
	at_least "lost by the slow one" "$lost" 1
	is "got and lost together" $((got + lost)) 30000000
	got=$(stat -c %s "$TMP/quick")
	lost=$(sed -n 's/^lost //p' "$TMP/quick.err")
	is "got and lost by the quick one" $((got + lost)) 30000000
}

#@ root user
test_who_only_watches_does_not_end_the_program() {
	local b pid
	b=$(box)
	den exec --no-stdin "$b" -- sh -c 'echo $$; sleep 5; echo end' >"$TMP/out" &
	soon 5 test -s "$TMP/out"
	pid=$(cat "$TMP/out")
	server live "$b" "$pid" </dev/null >"$TMP/seen" 2>"$TMP/err" &
	soon 5 has "$TMP/err" started
	kill -9 $!
	den ps "$b" | grep -q 'sleep 5' || fail "it went with its watcher"
	wait %1
	has "$TMP/out" end || fail "cut short"
}
