# A person at a terminal. terminal.py plays the person.

at_terminal() {
	timeout 55 /usr/bin/python3 "$TESTS/cli/terminal.py" "$@"
}

#@ root user range
test_a_terminal_outside_gives_one_inside_of_the_same_size() {
	at_terminal plain "$DEN" run -- sh -c 'test -t 0 && test -t 1 && test -t 2 && [ "$(stty size)" = "33 101" ] && case $(tty) in /dev/pts/*) echo END;; esac'
	soon 5 no_boxes
}

test_exec_and_attach_give_a_terminal_too() {
	local b
	b=$(box)
	at_terminal plain "$DEN" exec "$b" -- sh -c '[ "$(stty size)" = "33 101" ] && echo END'
	den exec --detach --tty --tag t "$b" -- sh -c 'echo ready; read x; echo "got <$x>"'
	at_terminal keys "$DEN" attach "$b" t
}

test_a_terminal_can_be_had_without_one_and_refused_with_one() {
	at_terminal plain "$DEN" run --no-tty -- sh -c 'test -t 0 || test -t 1 || echo END'
	try sh -c '"$DEN" run --tty -- sh -c "test -t 0 && test -t 1 && echo yes" </dev/null'
	want_rc 0
	want_out_has yes
	try sh -c '"$DEN" run -- sh -c "test -t 1 || echo plain" </dev/null'
	want_out plain
}

#@ root user
test_the_size_follows_the_window() {
	at_terminal resize "$DEN" run -- /usr/bin/python3 -c '
import os, signal, sys, termios, tty, select
def show(*_):
    s = os.get_terminal_size(0)
    os.write(1, b"size %d %d\n" % (s.lines, s.columns))
signal.signal(signal.SIGWINCH, show)
tty.setcbreak(0)
show()
while os.read(0, 1) != b"q": pass'
}

#@ root user range
test_ctrl_c_ends_the_program_inside() {
	at_terminal interrupt "$DEN" run -- sh -c 'echo ready; exec sleep 100'
	soon 5 no_boxes
	at_terminal interrupt_caught "$DEN" run -- sh -c 'trap "echo caught; exit 4" INT; echo ready; while :; do sleep 0.1; done'
}

test_ctrl_c_takes_the_line_along() {
	at_terminal interrupt_line "$DEN" run --env PS1='# ' -- sh -c 'stty iutf8; exec sh'
}

test_a_program_may_have_the_keys_as_bytes() {
	at_terminal interrupt_raw "$DEN" run -- /usr/bin/python3 -c '
import os, termios, tty
tty.setraw(0)
before = termios.tcgetattr(0)
os.write(1, b"ready\n")
while (c := os.read(0, 1)) != b"q":
    os.write(1, b"byte %d\n" % ord(c))
os.write(1, b"same" if termios.tcgetattr(0) == before else b"other")'
}

test_ctrl_z_is_for_the_program_inside() {
	at_terminal suspend "$DEN" run -- /usr/bin/python3 -c '
import os, signal, time
signal.signal(signal.SIGTSTP, lambda *_: (os.write(1, b"caught\n"), os._exit(5)))
os.write(1, b"ready\n")
time.sleep(100)'
	# no shell is there to let it go on: it is not stopped
	at_terminal unsuspended "$DEN" run -- sh -c 'echo ready; read x; echo "got <$x>"'
}

#@ root user range
test_an_interactive_shell_has_job_control() {
	at_terminal shell "$DEN" run --env PS1='# ' -- bash --norc --noprofile -i
}

test_typed_text_arrives_once() {
	at_terminal keys "$DEN" run -- sh -c 'stty -echo; echo ready; read x; echo "got <$x>"'
}

test_the_terminal_is_restored_after_a_kill() {
	at_terminal killed "$DEN" run -- sh -c 'echo ready; exec sleep 100'
	soon 15 no_boxes || fail "the box stayed"
}

test_stop_and_continue_from_outside_do_no_harm() {
	at_terminal stopped "$DEN" run -- sh -c 'echo ready; read x; echo "got <$x>"'
}

test_a_terminal_that_goes_away_ends_it() {
	at_terminal hangup "$DEN" run -- sh -c 'echo ready; exec sleep 100'
	soon 15 no_boxes || fail "the box stayed"
}

test_ctrl_c_stops_a_flood() {
	at_terminal flood "$DEN" run -- yes
	soon 5 no_boxes
}

# The escape codes of a program reach the terminal only while it runs: nothing of a name or a path in
# den's own messages may carry one.
test_messages_carry_no_escape_codes() {
	local bad=$'x\e]0;evil\a\e[31mred'
	try den run -- "$bad"
	want_rc 127
	not grep -q $'[\e\a]' <<<"$err" || fail "raw escape in: $err"
	try den inspect "$bad"
	not grep -q $'[\e\a]' <<<"$err" || fail "raw escape in: $err"
	try den run --workdir "/$bad" -- true
	not grep -q $'[\e\a]' <<<"$err" || fail "raw escape in: $err"
}
