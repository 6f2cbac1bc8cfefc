# CRIU reads images that hold what hostile programs had in memory. What could it do, if they took it over?

# taken_over BODY: a directory for DEN_RUNTIME with a CRIU that does what the lines of Python say. They have `note(STEP, PID)`,
# which tells the keeper of a step, and says whether it agreed; `done()`, which says that all went well.
taken_over() {
	local real=${DEN_RUNTIME:-/usr/local/lib/den/runtime}
	rm -rf "$TMP/runtime"
	mkdir -p "$TMP/runtime/criu"
	chmod 755 "$TMP" "$TMP/runtime"
	cp "$real/criu/version" "$TMP/runtime/criu/"
	{
		cat <<-'END'
			#!/usr/bin/python3
			import ctypes, os, socket, sys, time
			s = socket.socket(fileno=3)
			def number(n):
			    b = b""
			    while n > 127:
			        b, n = b + bytes([n & 127 | 128]), n >> 7
			    return b + bytes([n])
			def note(step, pid):
			    n = b"\x0a" + number(len(step)) + step.encode() + b"\x10" + number(pid)
			    s.send(b"\x08\x06\x10\x01\x2a" + number(len(n)) + n)
			    return b"\x18\x01" in s.recv(65536)
			def done():
			    s.send(b"\x08\x02\x10\x01")
			if s.recv(65536)[1] != 2: # what it needs of the kernel, before it has seen any image
			    s.send(b"\x08\x09\x10\x01")
			    sys.exit(0)
		END
		cat
	} >"$TMP/runtime/criu/ld.so"
	cp "$TMP/runtime/criu/ld.so" "$TMP/runtime/criu/criu"
	chmod 755 "$TMP/runtime/criu"/*
}

# refused BOX: the one that was taken over does not get through with it, and the box can be had after that
refused() {
	try env DEN_RUNTIME="$TMP/runtime" timeout 60 "$DEN" resume "$1"
	[ "$rc" != 0 ] || fail "it went well"
	is "on disk" "$(field "$1" on_disk)" True
}

on_disk() {
	can_save
	[ "${DEN_WALL:-container}" = container ] || skip "it is about CRIU"
	b=$(box)
	den exec --detach "$b" -- sleep 1000 >/dev/null
	timeout 60 "$DEN" pause --disk "$b" >/dev/null
	soon 5 nobody_keeps "$b" || fail "it is still kept"
}

#@ root
test_who_loads_cannot_name_another_process_as_process_1() {
	local b victim
	on_disk
	sleep 100 &
	victim=$!
	taken_over <<-END
		note("setup-namespaces", $victim)
		done()
	END
	refused "$b"
	want_err_has "process 1"
	taken_over <<-'END'
		note("setup-namespaces", os.getpid())
		done()
	END
	refused "$b"
	want_err_has "process 1"
	# It is process 1 of a namespace of the box's. But when it ends its number is free, and could be anybody's.
	taken_over <<-'END'
		ctypes.CDLL(None).unshare(0x20000000)
		p = os.fork()
		if p == 0:
		    time.sleep(60)
		note("setup-namespaces", p)
		done()
	END
	refused "$b"
	want_err_has "process 1"
	alive "$victim" || fail "the other process was ended"
	kill "$victim"
	den exec "$b" -- pgrep -x sleep >/dev/null
}

# Those of den's that have to be in the box's user namespace with it are copies of the keeper.
#@ root
test_who_loads_cannot_look_into_those_that_help_it() {
	local b
	on_disk
	taken_over <<-'END'
		c = ctypes.CDLL(None, use_errno=True)
		me, found = os.getpid(), 0
		parent = os.getppid()
		for p in range(max(2, me - 300), me + 300):
		    if p == me or p == parent:
		        continue
		    r = c.ptrace(0x4206, p, 0, 0)
		    e = ctypes.get_errno()
		    if r == 0:
		        note("could trace " + str(p), 1)
		        sys.stderr.write("Error (x.c:1): could trace %d\n" % p)
		        sys.exit(1)
		    found += e == 1
		sys.stderr.write("Error (x.c:1): traced none of %d\n" % found)
		sys.exit(1)
	END
	refused "$b"
	want_err_has "traced none of [1-9]"
	den exec "$b" -- pgrep -x sleep >/dev/null
}
