# Programs are carried through full checkpoints, rollbacks, forks and pauses, and say themselves whether anything
# is not as it was. What they have is in ../memory; `alone` is what needs the whole machine.

source "$TESTS/kit_memory.sh"

LIVE='python3 /memory/live.py|python3 /memory/live_http.py|node /memory/live.js|/memory/live.sh'

# live BOX SUBJECT...: also programs of interpreters, where the box has these
live() {
	local b=$1 spec args=()
	shift
	while IFS= read -r -d'|' spec; do
		# its here-document is a file without a name: see apart()
		case ${DEN_WALL:-container}:$spec in gvisor:*/live.sh) continue ;; esac
		case $spec in /*) ;; *) den exec "$b" -- sh -c "command -v ${spec%% *}" >/dev/null 2>&1 </dev/null || continue ;; esac
		args+=("$spec")
	done <<<"$LIVE|"
	at_least "interpreters" ${#args[@]} 2
	carry "$b" "${args[@]}" "$@"
}

#@ root timeout=150
test_every_program_survives_a_checkpoint_and_comes_back_by_rollback() {
	local b c
	can_save
	b=$(carrier)
	carry "$b" $(every)
	tell "$b" step
	c=$(full "$b")
	# The original did not notice.
	fine "$b" 1
	tell "$b" step
	fine "$b" 2
	den rollback "$b" "$c" >/dev/null
	fine "$b" 1
	tell "$b" step
	fine "$b" 2
}

#@ root timeout=150
test_every_program_survives_a_pause_on_disk() {
	local b i
	can_save
	b=$(carrier)
	carry "$b" $(every)
	tell "$b" step
	i=$(field "$b" init_pid)
	den pause --disk "$b" >/dev/null
	is state "$(state_of "$b")" paused
	soon 5 dead "$i" || fail "init is still there"
	den resume "$b"
	fine "$b" 1
	# and again, this time brought back by the first use
	tell "$b" step
	den pause --disk "$b" >/dev/null
	fine "$b" 2
	is state "$(state_of "$b")" running
}

#@ root timeout=150
test_every_program_runs_on_in_forks() {
	local b f g
	can_save
	b=$(carrier)
	carry "$b" $(every)
	tell "$b" step
	{ read -r f; read -r g; } <<<"$(den fork --full --count 2 "$b")"
	fine "$b" 1
	fine "$f" 1
	fine "$g" 1
	# From now on each goes its own way.
	tell "$f" step
	tell "$f" step
	tell "$b" step
	fine "$f" 3
	fine "$b" 2
	fine "$g" 1
	not test "$(den exec "$f" -- hostname)" = "$(den exec "$g" -- hostname)"
}

#@ root timeout=150
test_interpreters_servers_and_git_are_carried_through_each_way() {
	local b c f
	can_save
	b=$(carrier)
	live "$b" counter
	tell "$b" step
	c=$(full "$b")
	fine "$b" 1
	f=$(den fork --full "$b")
	fine "$f" 1
	den pause --disk "$f" >/dev/null
	tell "$b" step
	den resume "$f"
	fine "$f" 1
	den rollback "$b" "$c" >/dev/null
	fine "$b" 1
}

# A terminal multiplexer with an editor and two interpreters on its terminals.
tmux_in() {
	local b=$1
	shift
	"$DEN" exec "$b" -- tmux -L t "$@"
}

shows() {
	tmux_in "$1" capture-pane -p -t "$2" 2>/dev/null | grep -Eq -- "$3"
}

want_shown() {
	soon 15 shows "$@" || fail "window $2 of $1 has no '$3': $(tmux_in "$1" capture-pane -p -t "$2" | grep . | tail -5)"
}

start_windows() {
	local b=$1
	den exec "$b" -- sh -c 'cd /root; tmux -L t new-session -d -s s -n vim -x 100 -y 30 "vim -u NONE -N /root/text"
		tmux -L t new-window -d -n py "python3 -q -i"
		tmux -L t new-window -d -n node "node -i"
		tmux -L t new-window -d -n sh "bash --norc --noprofile"'
	tmux_in "$b" send-keys -t vim 'ihello from before' Escape
	tmux_in "$b" send-keys -t py 'import itertools; c = itertools.count(40); x = [next(c)]' Enter
	tmux_in "$b" send-keys -t node 'let v = new Map([["k", 41]]); let later = 0; setInterval(() => later++, 10).unref()' Enter
	tmux_in "$b" send-keys -t sh 'y=17; cd /var/tmp; sleep 1000 & echo job $?' Enter
	want_shown "$b" vim 'hello from before'
	want_shown "$b" sh 'job 0'
}

# TAG makes what is looked for different each time.
use_windows() {
	local b=$1 tag=$2
	tmux_in "$b" send-keys -t vim "o$tag" Escape ':w!' Enter
	tmux_in "$b" send-keys -t py "print('$tag', x[0], next(c) > 40)" Enter
	tmux_in "$b" send-keys -t node "console.log('$tag', v.get('k') + 1)" Enter
	tmux_in "$b" send-keys -t sh "echo $tag \$y \$PWD; jobs" Enter
	want_shown "$b" py "^$tag 40 True"
	want_shown "$b" node "^$tag 42"
	want_shown "$b" sh "^$tag 17 /var/tmp"
	want_shown "$b" sh "sleep 1000"
	soon 10 den exec "$b" -- grep -qx "$tag" /root/text || fail "vim has not written $tag: $(den exec "$b" -- cat /root/text)"
	den exec "$b" -- grep -q 'hello from before' /root/text
}

#@ root timeout=120
test_an_editor_and_interpreters_in_a_terminal_go_on() {
	local b c f
	can_save
	b=$(carrier)
	for c in tmux vim node; do
		den exec "$b" -- sh -c "command -v $c" >/dev/null || skip "there is no $c here"
	done
	start_windows "$b"
	c=$(full "$b")
	use_windows "$b" original
	f=$(den fork --full "$b@$c")
	use_windows "$f" fork
	not den exec "$f" -- grep -q original /root/text || fail "the fork has what the original wrote later"
	den pause --disk "$b" >/dev/null
	den resume "$b"
	use_windows "$b" resumed
	den rollback "$b" "$c" >/dev/null
	use_windows "$b" back
	not den exec "$b" -- grep -q -e original -e resumed /root/text || fail "rolled back, but not the file"
}

#@ root timeout=150 waits
test_ten_generations_of_restore_of_restore() {
	local b c i
	can_save
	b=$(carrier)
	carry "$b" counter files pipe tcp threads timers children
	for i in $(seq 10); do
		tell "$b" step
		c=$(full "$b")
		tell "$b" step
		den rollback "$b" "$c" >/dev/null
		tell "$b" count
		is "steps of generation $i" "$(grep -c " ok $i\$" <<<"$out")" 7
	done
	fine "$b" 10
}

#@ root timeout=120
test_forks_of_forks_of_forks() {
	local b f i
	can_save
	b=$(carrier)
	carry "$b" counter fifo unix udp locks shm clock
	f=$b
	for i in 1 2 3 4; do
		tell "$f" step
		f=$(den fork --full "$f")
		fine "$f" "$i"
	done
	fine "$b" 1
}

#@ root timeout=120
test_ten_forks_at_once() {
	local b f n=0
	can_save
	b=$(carrier)
	carry "$b" counter heap=16 transfer unix
	tell "$b" step
	den fork --full --count 10 "$b" >forks
	is "forks" "$(wc -l <forks)" 10
	while read -r f; do
		n=$((n + 1))
		tell "$f" step
		[ $((n % 3)) != 0 ] || fine "$f" 2
	done <forks
	fine "$b" 1
	is "host names" "$(for f in $(cat forks); do den exec "$f" -- hostname; done | sort -u | wc -l)" 10
}

# ---- the original goes on ----

#@ root alone timeout=120
test_the_original_stands_still_for_a_moment_only() {
	local b i n worst=0
	can_save
	b=$(carrier)
	carry "$b" clock heap=100
	gap "$b" >/dev/null
	for i in 1 2 3; do
		full "$b" >/dev/null
		n=$(gap "$b")
		[ "$n" -le $worst ] || worst=$n
	done
	# The goal is 50 ms on a machine that does nothing else; here it must not grow with what is written to disk.
	at_most "milliseconds without running" $worst $((1500 * ${DEN_TEST_SLOW:-1}))
	fine "$b" 0
}

# Neither a byte nor an end is lost of what is attached, whatever is done to the box.
#@ root timeout=120
test_streams_go_on_through_checkpoint_fork_and_pause() {
	local b p f
	can_save
	b=$(carrier)
	"$DEN" exec "$b" -- sh -c 'i=0; while [ $i -lt 500 ]; do echo $i; i=$((i + 1)); sleep 0.01; done; exit 9' >numbers 2>e1 &
	p=$!
	mkfifo in
	"$DEN" exec "$b" -- sh -c 'while read -r x; do echo "<$x>"; done' <in >echoed 2>e2 &
	exec 8>in
	echo one >&8
	soon 10 grep -q '<one>' echoed
	full "$b" >/dev/null
	echo two >&8
	soon 10 grep -q '<two>' echoed || fail "after a checkpoint: $(cat echoed e2)"
	f=$(den fork --full "$b")
	echo three >&8
	soon 10 grep -q '<three>' echoed || fail "after a fork: $(cat echoed e2)"
	den pause --disk "$b" >/dev/null
	den resume "$b"
	echo four >&8
	soon 10 grep -q '<four>' echoed || fail "after a pause: $(cat echoed e2)"
	exec 8>&-
	rc=0
	wait $p || rc=$?
	is "status of what was attached" $rc 9
	seq 0 499 | cmp - numbers || fail "lost: $(wc -l <numbers) lines; $(cat e1)"
	wait
	is "echo" "$(tr '\n' ' ' <echoed)" "<one> <two> <three> <four> "
	# In the fork the same programs run, and nobody is attached.
	at_least "programs in the fork" "$(den exec "$f" -- pgrep -c -f 'while read')" 1
}

#@ root timeout=60
test_clocks_do_not_jump_by_a_pause() {
	local b n
	can_save
	b=$(carrier)
	carry "$b" clock timers sleep
	gap "$b" >/dev/null
	den pause --disk "$b" >/dev/null
	sleep 4
	den resume "$b"
	fine "$b" 0
	n=$(gap "$b")
	# gVisor reckons it from the time of day.
	[ "${DEN_WALL:-container}" = gvisor ] || at_most "jump of the monotonic clock in ms" "$n" 3500
	# The wall clock does: it is the host's.
	at_most "seconds between the clocks" "$(($(date +%s) - $(den exec "$b" -- date +%s)))" 2
}

#@ root timeout=90
test_two_copies_do_not_meet() {
	local b f
	can_save
	b=$(carrier)
	den exec --detach "$b" -- python3 -c '
import http.server, socket
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(socket.gethostname().encode())
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), H).serve_forever()' >/dev/null
	carry "$b" counter
	soon 10 served "$b"
	f=$(den fork --full "$b")
	is "who answers in the box" "$(served_by "$b")" "$(den exec "$b" -- hostname)"
	is "who answers in the fork" "$(served_by "$f")" "$(den exec "$f" -- hostname)"
}

served_by() {
	den exec "$1" -- python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8080/", timeout=10).read().decode())'
}

served() {
	served_by "$1" >/dev/null 2>&1
}

# ---- what cannot be carried is told, and goes on ----

# refused_or_carried BOX: either the checkpoint says why not, or it has all of it; silently broken is neither
refused_or_carried() {
	local b=$1 c
	try timeout 60 "$DEN" checkpoint --quiet --full "$b"
	if [ "$rc" = 0 ]; then
		c=$out
		fine "$b" 0
		den rollback "$b" "$c" >/dev/null
	else
		[ "$rc" != 124 ] || fail "hangs"
		[ -n "$err" ] || fail "refused without a reason"
		is state "$(state_of "$b")" running
	fi
	fine "$b" 0
}

#@ root timeout=150
test_what_cannot_be_carried_is_refused_with_the_reason() {
	local b s
	can_save
	for s in $(apart) unix=said pty=sh; do
		b=$(carrier)
		carry "$b" "$s"
		refused_or_carried "$b"
		den rm --force "$b"
	done
	# A process that another one traces.
	b=$(carrier)
	carry "$b" counter
	den exec --detach "$b" -- python3 -c '
import ctypes, os, time
libc = ctypes.CDLL(None)
if os.fork() == 0:
    libc.ptrace(0, 0, 0, 0)
    while True: time.sleep(1)
while True: time.sleep(1)' >/dev/null
	sleep 0.3
	refused_or_carried "$b"
}

#@ root user
test_where_programs_cannot_be_saved_the_reason_is_told() {
	local b
	b=$(carrier)
	carry "$b" counter
	tell "$b" step
	try timeout 60 "$DEN" checkpoint --full "$b"
	if [ "$rc" != 0 ]; then
		[ -n "$err" ] || fail "no reason"
		try timeout 60 "$DEN" pause --disk "$b"
		[ "$rc" != 0 ] || fail "paused what cannot be saved"
		try timeout 60 "$DEN" fork --full "$b"
		[ "$rc" != 0 ] || fail "forked what cannot be saved"
	fi
	is "boxes" "$(boxes | wc -l)" 1
	is state "$(state_of "$b")" running
	fine "$b" 1
}

# What files in memory have besides their content: lists of who may, attributes of programs, capabilities.
#@ root
test_attributes_of_files_in_memory_are_carried() {
	local b f before
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "gVisor has no lists of who may"
	b=$(box)
	cat >attrs.py <<-'END'
		import os, struct, sys
		def acl(user):
		    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in
		        ((1, 6, 2**32 - 1), (2, 4, user), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)))
		if sys.argv[1] == "make":
		    os.mkdir("/dev/shm/d")
		    for f in "/dev/shm/d/plain", "/dev/shm/d/listed", "/run/f":
		        open(f, "w").write(f)
		        os.chmod(f, 0o640)
		    os.symlink("listed", "/dev/shm/d/link")
		    os.setxattr("/dev/shm/d/listed", "system.posix_acl_access", acl(1234))
		    os.setxattr("/dev/shm/d", "system.posix_acl_default", acl(77))
		    os.setxattr("/run", "system.posix_acl_default", acl(78))
		    os.setxattr("/run/f", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
		    try: # Linux 6.6 and newer
		        for f in "/dev/shm/d", "/run/f":
		            os.setxattr(f, "user.mark", b"of " + f.encode() + b"\0\xff")
		    except OSError as e:
		        print(e, file=sys.stderr)
		for f in "/run", "/run/f", "/dev/shm/d", "/dev/shm/d/plain", "/dev/shm/d/listed", "/dev/shm/d/link":
		    print(f, oct(os.lstat(f).st_mode), *((a, os.getxattr(f, a, follow_symlinks=False).hex())
		        for a in sorted(os.listxattr(f, follow_symlinks=False))))
	END
	den cp attrs.py "$b:/root/"
	before=$(den exec "$b" -- python3 /root/attrs.py make)
	at_least "attributes" "$(grep -o "system.posix\|security.cap" <<<"$before" | wc -l)" 4
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	is "after a pause" "$(den exec "$b" -- python3 /root/attrs.py look)" "$before"
	f=$(timeout 60 "$DEN" fork --quiet --full "$b")
	is "in a fork" "$(den exec "$f" -- python3 /root/attrs.py look)" "$before"
}
