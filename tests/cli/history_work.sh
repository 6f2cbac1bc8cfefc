# Work on a box's files that takes long, is in nobody's way, and ends; and what a crash left of it.

source "$TESTS/kit_history.sh"

# answers BOX PID: how often the box is told of while that process lives
answers() {
	local n=0
	while kill -0 "$2" 2>/dev/null; do
		den inspect "$1" >/dev/null
		n=$((n + 1))
	done
	echo "$n"
}

many_files() {
	in_box "$1" 'mkdir /root/many; cd /root/many; i=0
		while [ $i -lt 6000 ]; do echo $i >$i; i=$((i + 1)); done'
}

# Deleted, with all its files freed.
gone() {
	den rm --force "$1"
	soon 40 not test -e "$DEN_STATE/trash/$1" -o -e "$DEN_STATE/pool/$1"
}

# A checkpoint of many files is copied. Nobody else waits for that, but what would change the box.
#@ root user fresh timeout=120 waits
test_a_long_checkpoint_is_in_nobodys_way() {
	local b pid late
	den pool --kind plain >/dev/null
	b=$(box --history manual)
	many_files "$b"
	den checkpoint "$b" >number &
	pid=$!
	sleep 0.1
	in_box "$b" 'echo 1 >/root/late' &
	late=$!
	at_least "answers meanwhile" "$(answers "$b" $pid)" 4
	wait $pid
	wait $late
	is number "$(head_of "$b")" 1
	is "what came later waited" "$(den diff "$b" 1 now)" "A /root/late"
	den rollback "$b" 1 >/dev/null &
	pid=$!
	at_least "answers in a rollback" "$(answers "$b" $pid)" 4
	wait $pid
	is "rolled back" "$(in_box "$b" 'ls /root; ls /root/many | wc -l' | tr '\n' ' ')" "many 6000 "
	gone "$b"
}

# Clients that send while others' work is done are answered in the order they sent, none is forgotten.
#@ root fresh timeout=120 waits
test_what_waits_for_long_work_is_done_in_order() {
	local b pid i
	den pool --kind plain >/dev/null
	b=$(box --history manual)
	many_files "$b"
	den checkpoint "$b" >/dev/null &
	pid=$!
	for i in 1 2 3; do
		den checkpoint -m "number $i" "$b" >/dev/null &
		pid="$pid $!"
		sleep 0.2
	done
	# one that goes before it is answered does no harm
	timeout -s KILL 0.2 "$DEN" checkpoint "$b" >/dev/null || :
	for i in $pid; do
		wait "$i"
	done
	at_least "checkpoints" "$(points "$b")" 5
	is "their order" "$(den log --json "$b" |
		js '" ".join(c["message"] for c in reversed(v) if "number" in (c["message"] or ""))')" \
		"number 1 number 2 number 3"
	gone "$b"
}

# Eight who ask and never read would leave no room for anybody else.
#@ root user timeout=120 waits
test_an_answer_that_nobody_reads_ends() {
	local b pid
	b=$(box)
	in_box "$b" 'head -c 3000000 /dev/urandom >/root/large'
	/usr/bin/python3 - "$DEN_STATE/boxes/$b/keeper.sock" "$TMP/taken" <<-'END' &
		import array, os, signal, socket, struct, sys
		OK, DIFF, F_FLAGS, TAR = 1, 38, 5, 2
		kept = []
		os.chdir(os.path.dirname(sys.argv[1]))
		for i in range(8):
		    s = socket.socket(socket.AF_UNIX)
		    s.connect("keeper.sock")
		    ours, theirs = socket.socketpair()
		    body = struct.pack("<HIQ", F_FLAGS, 8, TAR)
		    s.sendmsg([b"d\1" + struct.pack("<BBII", DIFF, 0, len(body), 0) + body],
		              [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
		    answer = s.recv(12, socket.MSG_WAITALL)
		    assert len(answer) == 12 and answer[2] == OK, (i, answer)
		    kept += [s, ours, theirs]
		open(sys.argv[2], "w").close()
		signal.pause()
	END
	pid=$!
	# nobody else may ask before: whose request is answered just then takes a place for that moment
	soon 20 test -e "$TMP/taken"
	try den diff "$b"
	want_rc 6
	want_err_has 'under way'
	soon 60 den diff "$b" >/dev/null
	kill $pid
	wait $pid || :
}

#@ root user
test_removing_a_template_does_not_wait_for_one_being_made() {
	local b pid begin
	b=$(box)
	den template create taken --from "$b" >/dev/null
	flock -s --no-fork "$DEN_STATE/templates/.lock" sleep 30 &
	pid=$!
	sleep 0.3
	begin=$(now_ms)
	try den template rm taken
	want_rc 4
	want_err_has 'just being made'
	at_most "ms until told" $(($(now_ms) - begin)) 8000
	den gc >/dev/null
	kill $pid
	wait $pid || :
	den rm --force "$b"
	soon 5 den template rm taken
}

# Nobody waits for the dead process 1: its number stays, but it runs no more.
#@ root user
test_a_box_whose_init_nobody_reaps_can_be_deleted() {
	timeout 40 /usr/bin/python3 - "$DEN" <<-'END'
		import ctypes, json, os, signal, subprocess, sys, time
		den = sys.argv[1]
		assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # what loses its parent is ours
		def call(*args):
		    return subprocess.run([den, *args], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
		box = call("create")
		init, keeper = json.loads(call("inspect", "--json", box))["init_pid"], None
		for pid in filter(str.isdigit, os.listdir("/proc")):
		    try:
		        if int(pid) == init:
		            keeper = int(open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()[1])
		    except OSError:
		        pass
		os.kill(keeper, signal.SIGKILL)
		os.kill(init, signal.SIGKILL)
		time.sleep(0.3)
		assert open("/proc/%d/stat" % init).read().rsplit(")", 1)[1].split()[0] == "Z", "it is to be a zombie"
		call("start", box)
		call("rm", "--force", box)
	END
	is "boxes" "$(den ls --all --quiet)" ""
}

# What a box writes to had not reached the disk when the power went; its beginning had.
#@ root user range fresh timeout=90
test_a_fork_whose_files_are_lost_begins_again() {
	local b f
	den pool --kind plain >/dev/null
	b=$(box)
	in_box "$b" 'echo 1 >/root/a'
	f=$(den fork "$b")
	den stop --grace 0 "$f"
	sleep 0.5 # its keeper leaves
	mv "$DEN_STATE/pool/$f/w1" "$DEN_STATE/pool/$f/.lost"
	den start "$f"
	is "as it was forked" "$(in_box "$f" cat /root/a)" 1
	is points "$(points "$f")" 1
	den exec "$f" -- sh -c 'echo 2 >/root/a'
	is "goes on" "$(points "$f")" 2
}
