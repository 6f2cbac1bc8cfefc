# Out of the box, onto the host, or into another box: each line is something attackers do.

as_everyone() {
	echo root
	case $VARIANT in user) ;; *) echo user ;; esac
}

own_kernel() {
	[ "${DEN_WALL:-}" = gvisor ]
}

# attack BOX PROGRAM ARGUMENT...: inside, as root and as the ordinary user; nothing may be open
attack() {
	local b=$1 u
	shift
	for u in $(as_everyone); do
		try timeout 50 "$DEN" exec -e "ATTACK_KERNEL=$(own_kernel && echo own || echo hosts)" --user $u "$b" -- "/attacks/attack-$1" "${@:2}"
		want_rc 0
	done
}

#@ root user range
test_deep_kernel_calls_are_refused() {
	local b
	b=$(box)
	attack "$b" forbidden
	want_out_has '[1-9][0-9]* tried, 0 open'
}

#@ root user range
test_calls_of_32_bits_and_x32_find_no_gap() {
	local b
	b=$(box)
	attack "$b" compat
	want_out_has '[1-9][0-9]* tried, 0 open'
}

#@ root user range
test_mounts_and_namespaces_cannot_be_rearranged() {
	local b
	b=$(box)
	attack "$b" mounts
	want_out_has '[1-9][0-9]* tried, 0 open'
	[ ! -e "$ATTACKS/planted" ] || fail "a read-only mount was written"
	# Whatever happened, the box's own view is as before.
	den exec "$b" -- sh -c 'test -d /proc/1 && test -x /usr/bin/env'
}

#@ root user range
test_init_cannot_be_read_traced_or_robbed() {
	local b
	b=$(box)
	attack "$b" peer
	want_out_has '[1-9][0-9]* tried, 0 open'
}

#@ root user range
test_no_kernel_file_can_be_written() {
	local b before
	b=$(box)
	before=$(cat /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe 2>/dev/null || :)
	# what its own kernel shows may be opened and written, if that changes nothing of the host's
	if own_kernel; then
		den exec "$b" -- sh -c 'for f in $(find /proc/sys /sys -type f) /proc/sysrq-trigger; do { echo 1 >$f; } 2>/dev/null; done; :'
		is "settings of the host" "$(cat /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe 2>/dev/null || :)" "$before"
		is "the box lives" "$(den exec "$b" -- echo x)" x
		return
	fi
	attack "$b" walk
	want_out_has '[1-9][0-9]* tried, 0 open'
	local f
	for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory /proc/sys/fs/binfmt_misc/register /sys/kernel/uevent_helper /proc/sys/kernel/panic /proc/sys/kernel/randomize_va_space; do
		try den exec "$b" -- sh -c "echo '|/tmp/x' >$f"
		[ "$rc" != 0 ] || fail "$f was written"
	done
	is "settings of the host" "$(cat /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe 2>/dev/null || :)" "$before"
}

#@ root user
test_terminal_input_cannot_be_forged() {
	local b
	b=$(box)
	try sh -c '"$DEN" exec -e "ATTACK_KERNEL=$1" --tty "$0" -- /attacks/attack-tiocsti </dev/null' "$b" "$(own_kernel && echo own || echo hosts)"
	want_rc 0
	want_out_has '0 open'
}

#@ root user range
test_no_descriptor_of_the_caller_enters() {
	local b
	echo secret >secret
	exec 3<secret 4</ 5<>secret 9<"$DEN_STATE/.." 17</etc/passwd
	b=$(box)
	try den run -- sh -c 'ls -l /proc/self/fd; cat <&3 2>/dev/null; cat <&5 2>/dev/null'
	not grep -q secret <<<"$out" || fail "a descriptor came along: $out"
	is "descriptors in run" "$(den run -- sh -c 'ls /proc/$$/fd; :' | tr '\n' ' ')" "0 1 2 "
	is "descriptors in exec" "$(den exec "$b" -- sh -c 'ls /proc/$$/fd; :' | tr '\n' ' ')" "0 1 2 "
	is "descriptors on a terminal" "$(den exec --tty "$b" -- sh -c 'ls -1 /proc/$$/fd; :' </dev/null | tr -d '\r' | tr '\n' ' ')" "0 1 2 "
	# Nor into the processes that stay outside and could be robbed later.
	local i
	i=$(field "$b" init_pid)
	if [ "$VARIANT" = root ]; then
		ls -l "/proc/$i/fd" "/proc/$(field "$b" keeper_pid)/fd" >fds
		grep -q socket fds
		not grep -q "$TMP" fds || fail "init or keeper holds a file of the caller: $(grep "$TMP" fds)"
	fi
	exec 3<&- 4<&- 5<&- 9<&- 17<&-
}

#@ root user range
test_no_working_directory_points_outside() {
	local n
	mkdir deep
	echo secret >deep/secret
	cd deep
	try den run -- sh -c 'pwd; ls; cat secret 2>/dev/null'
	not grep -q secret <<<"$out" || fail "$out"
	# The way of CVE-2024-21626: a working directory behind a descriptor that should not be there.
	for n in $(seq 3 20); do
		try den run --workdir "/proc/self/fd/$n" -- sh -c 'pwd; cat ../secret secret ../../../etc/shadow 2>/dev/null'
		not grep -q secret <<<"$out" || fail "descriptor $n: $out"
		[ "$rc" != 0 ] || fail "a working directory behind descriptor $n: $out"
	done
	# And planted by the box itself, as a link.
	local b
	b=$(box)
	den exec "$b" -- sh -c 'for n in 3 4 5 6 7 8 9 10 11 12; do ln -s /proc/self/fd/$n /root/l$n; done'
	for n in 3 4 5 6 7 8 9 10 11 12; do
		try den exec --workdir "/root/l$n" "$b" -- sh -c 'ls -A'
		[ "$rc" != 0 ] || fail "a working directory behind descriptor $n: $out"
	done
}

# CVE-2019-5736: a program of the box that makes den run itself there, and another that writes to it.
#@ root user
test_dens_own_programs_cannot_be_overwritten() {
	local b den_before init_before
	b=$(box)
	den_before=$(sum "$DEN")
	init_before=$(find "$DEN_STATE/lib" -type f | sort | xargs cat | sha256sum)
	den exec "$b" -- sh -c 'printf "#!/proc/self/exe\n" >/root/evil; chmod 755 /root/evil
cat >/root/hunt <<"X"
#!/bin/bash
# For a few seconds: keep every executable that is not ours open, and write to it when it is free.
end=$((SECONDS + 6))
hit=0
while [ $SECONDS -lt $end ]; do
	for p in /proc/[0-9]*; do
		if { exec 8>>$p/exe; } 2>/dev/null; then
			case $(readlink $p/exe) in /usr/*|/attacks/*|/root/*) ;; *) echo pwned >&8; hit=1;; esac
			exec 8>&-
		fi
		if { exec 9<$p/exe; } 2>/dev/null; then
			case $(readlink /proc/self/fd/9) in /usr/*|/root/*|/attacks/*) ;; *)
				{ echo pwned >/proc/self/fd/9; } 2>/dev/null && hit=1;;
			esac
			exec 9<&-
		fi
	done
done
echo hit $hit
X
chmod 755 /root/hunt'
	den exec --detach --tag hunt "$b" -- /root/hunt
	local i
	for i in $(seq 40); do
		timeout 10 "$DEN" exec "$b" -- /root/evil >/dev/null 2>&1 || [ $? != 124 ] || fail "hangs"
		timeout 10 "$DEN" fs stat "$b" /root >/dev/null
	done
	try timeout 30 "$DEN" attach "$b" hunt
	want_out_has 'hit 0'
	is "den" "$(sum "$DEN")" "$den_before"
	is "den-init" "$(find "$DEN_STATE/lib" -type f | sort | xargs cat | sha256sum)" "$init_before"
	is "still works" "$(den run -- echo x)" x
}

#@ root user range
test_signals_stay_inside() {
	local b p q other
	sleep 1000 &
	p=$!
	b=$(box)
	other=$(box)
	q=$(den exec --detach --tag s "$other" -- sleep 1000)
	try den exec "$b" -- sh -c 'trap "" TERM; kill -TERM -1; kill -KILL -1; true'
	# init goes on; everything outside, too.
	is state "$(state_of "$b")" running
	is "afterwards" "$(den exec "$b" -- echo x)" x
	alive $p || fail "a process of the host was hit"
	den exec "$other" -- pgrep -x sleep >/dev/null || fail "a process of another box was hit"
	# its own kernel lets root of the box end process 1, and with it the box: all but that
	try den exec "$b" -- sh -c "kill -KILL $p; kill -KILL $(field "$b" keeper_pid); $(own_kernel || echo kill -KILL 1); for s in TERM INT HUP QUIT $(own_kernel || echo ABRT SEGV STOP) TSTP USR1 USR2 PIPE ALRM CHLD PWR WINCH; do kill -\$s 1; done; true"
	alive $p
	alive "$(field "$b" keeper_pid)"
	is "init survives" "$(timeout 10 "$DEN" exec "$b" -- echo x)" x
	kill $p
}

#@ root user range
test_processes_of_host_and_other_boxes_are_invisible() {
	local b other
	sh -c 'exec sleep 98765' &
	b=$(box)
	other=$(box)
	den exec --detach "$other" -- sleep 56789
	try den exec "$b" -- sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " "; echo; ls /proc | grep -c "^[0-9]"'
	not grep -Eq '98765|56789' <<<"$out" || fail "visible: $out"
	at_most "processes seen" "$(tail -1 <<<"$out")" 8
	try den exec "$b" -- sh -c 'cat /proc/1/mountinfo /proc/self/mountinfo /proc/self/cgroup'
	not grep -q "$TMP" <<<"$out" || fail "a path of the host: $out"
	kill %1
}

#@ root user range
test_nothing_on_the_network_is_reachable() {
	local b port p
	/usr/bin/python3 -c '
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(8)
print(s.getsockname()[1], flush=True)
time.sleep(60)' >port &
	p=$!
	soon 10 test -s port
	port=$(cat port)
	"$ATTACKS/attack-net" port 127.0.0.1 "$port" || fail "the test's own service does not answer"
	b=$(box)
	# with a kernel of its own it has a cable to its gate, too
	is cards "$(den exec "$b" -- /attacks/attack-net cards | sort | tr '\n' ' ')" "$(own_kernel && echo 'eth0 lo ' || echo 'lo ')"
	# No kernel answers to a packet that was for many, nor for a neighbour that is not there: over a cable such go nowhere
	# and are not refused. Without one they are not even sent.
	local nowhere='224.0.0.1 255.255.255.255 fe80::1'
	# shellcheck disable=SC2086
	attack "$b" net "$(own_kernel && echo silent || echo refused)" $nowhere
	attack "$b" net refused 8.8.8.8 1.1.1.1 169.254.169.254 10.0.0.1 192.168.1.1 172.16.0.1 \
		198.18.0.1 0x7f.1 2130706433 127.1 0 0177.0.0.1 \
		::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 2001:4860:4860::8888 fd00::1
	local a
	for a in 127.0.0.1 0.0.0.0 127.1 ::ffff:127.0.0.1 $(hostname -I 2>/dev/null || :); do
		try den exec "$b" -- /attacks/attack-net port "$a" "$port"
		want_rc 1
	done
	kill $p
	# The box's own loopback is its own.
	den exec "$b" -- /usr/bin/python3 -c '
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(1)
c = socket.create_connection(s.getsockname(), 2)'
	# Names are answered at once: there is nobody to ask.
	local t
	t=$(now_ms)
	try timeout 20 "$DEN" exec "$b" -- getent hosts example.com
	[ "$rc" != 0 ] || fail "a name was resolved: $out"
	at_most milliseconds $(($(now_ms) - t)) 3000
}

#@ root user range
test_strange_socket_families_are_refused() {
	local b
	b=$(box)
	attack "$b" net families
}

#@ root user range
test_sockets_and_shared_memory_of_the_host_are_out_of_reach() {
	local b name key shm p
	name=den-suite-$$
	/usr/bin/python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind("\0" + sys.argv[1]); s.listen(4)
print("ready", flush=True); time.sleep(60)' $name >ready &
	p=$!
	soon 10 test -s ready
	"$ATTACKS/attack-net" abstract $name || fail "the test's own socket does not answer"
	b=$(box)
	try den exec "$b" -- /attacks/attack-net abstract $name
	want_rc 1
	shm=$(ipcmk -M 4096 | grep -o '[0-9]*$')
	is "segments inside" "$(den exec "$b" -- ipcs -m | grep -c 0x || :)" 0
	is "queues inside" "$(den exec "$b" -- ipcs -q | grep -c 0x || :)" 0
	ipcrm -m "$shm"
	echo host >"/dev/shm/den-suite-$$"
	try den exec "$b" -- ls "/dev/shm/den-suite-$$"
	rm "/dev/shm/den-suite-$$"
	want_rc 2
	kill $p
	# And between boxes.
	local other
	other=$(box)
	den exec "$other" -- ipcmk -M 4096 >/dev/null
	is "segments of another box" "$(den exec "$b" -- ipcs -m | grep -c 0x || :)" 0
}

#@ root user range
test_changes_to_the_template_stay_in_the_box() {
	local b other f before
	b=$(box)
	other=$(box)
	f=/usr/bin/yes
	before=$(sum $f)
	den exec "$b" -- sh -c "cp $f /tmp/y && { echo pwned >>$f || { rm -f $f && cp /usr/bin/true $f; }; } 2>/dev/null; :"
	is "on the host" "$(sum $f)" "$before"
	is "in another box" "$(den exec "$other" -- sha256sum $f | cut -d' ' -f1)" "$before"
	[ "$(den exec "$b" -- sha256sum $f | cut -d' ' -f1)" != "$before" ] || fail "root inside cannot change /usr: it is not a real root"
	den exec "$b" -- sh -c 'echo pwned >>/etc/passwd; echo pwned >>/etc/hostname; echo x >/usr/bin/planted'
	not grep -q pwned /etc/passwd
	[ ! -e /usr/bin/planted ] || fail "planted on the host"
	not den exec "$other" -- test -e /usr/bin/planted
	not den exec "$other" -- grep -q pwned /etc/passwd
	den stop "$b"
	den start "$b"
	den exec "$b" -- test -e /usr/bin/planted
	den rm --force "$b"
	is "on the host, after deletion" "$(sum $f)" "$before"
}

#@ root user range
test_data_of_the_host_is_not_in_the_box() {
	local b h
	b=$(box)
	if [ "$VARIANT" = root ]; then
		h=$(grep -v -e ':\*:' -e ':!' /etc/shadow | cut -d: -f2 | sort -u || :)
		for h in $h; do
			not den exec "$b" -- grep -qF "$h" /etc/shadow || fail "a password of the host"
		done
	fi
	is home "$(den exec "$b" -- ls /home | grep -vx user || :)" ""
	not den exec "$b" -- test -e "$TMP"
	not den exec "$b" -- test -e "$DEN_STATE"
	try den exec "$b" -- sh -c 'ls -A /root /mnt /srv /media 2>/dev/null | grep -v -e : -e "^\.bashrc$" -e "^\.profile$" -e "^$"'
	want_out ""
	for h in /etc/machine-id /etc/ssh/ssh_host_ed25519_key /var/lib/dbus/machine-id /etc/hostname; do
		if [ -s $h ]; then
			not den exec "$b" -- grep -qxF "$(head -1 $h)" $h 2>/dev/null || fail "$h of the host"
		fi
	done
	try den exec "$b" -- sh -c 'ls -d /work /var/run/docker.sock /run/systemd/private /run/dbus /var/log/journal /var/spool/cron/crontabs/* 2>/dev/null'
	want_out ""
	is "mail and logs" "$(den exec "$b" -- sh -c 'find /var/log /var/mail /var/spool /var/backups -type f -size +0 2>/dev/null | head -3')" ""
}

#@ root
test_each_box_has_ids_of_its_own() {
	local a b
	a=$(box)
	b=$(box)
	local ma mb
	ma=$(awk '{ print $2, $3 }' "/proc/$(field "$a" init_pid)/uid_map")
	mb=$(awk '{ print $2, $3 }' "/proc/$(field "$b" init_pid)/uid_map")
	[ "$ma" != "$mb" ] || fail "two boxes with one id range: $ma"
	at_least "first id outside" "${ma% *}" 65536
	is "ids in the range" "${ma#* }" 65536
	is "lines of the map" "$(wc -l <"/proc/$(field "$a" init_pid)/uid_map")" 1
	# Root in the box is nobody outside.
	local p
	p=$((RANDOM + 100000))
	den exec --detach "$a" -- sleep $p
	p=$(own_kernel && pgrep -P "$(field "$a" init_pid)" -f runsc-sandbox || pgrep -f -x "sleep $p")
	local id
	for id in $(grep -E '^(Uid|Gid):' "/proc/$p/status" | cut -f2-); do
		at_least "uid and gid outside" "$id" 65536
	done
	is "filter" "$(awk '/^Seccomp:/ { print $2 }' "/proc/$p/status")" 2
}

#@ root user range
test_every_process_of_a_box_has_the_filter() {
	local b p
	b=$(box)
	try den exec "$b" -- grep -E '^(Seccomp|CapEff|CapBnd)' /proc/self/status
	own_kernel || want_out_has 'Seccomp:.2' # there it is the sentry that has one: gvisor.sh
	# Not one of them: sys_admin 21, sys_module 16, sys_rawio 17, sys_boot 22, sys_time 25, mac 32 33, syslog 34, bpf 39, perfmon 38, sys_ptrace over others does not matter
	/usr/bin/python3 - "$(awk '/CapBnd/ { print $2 }' <<<"$out")" <<'PY'
import sys
bound = int(sys.argv[1], 16)
bad = [n for n, bit in dict(sys_module=16, sys_rawio=17, sys_boot=22, sys_time=25, mac_override=32,
                            mac_admin=33, syslog=34, perfmon=38, bpf=39).items() if bound >> bit & 1]
assert not bad, "capabilities in the bounding set: %s" % bad
PY
}

#@ root user
test_another_box_cannot_be_guessed_or_reached() {
	local a b
	a=$(box --name a)
	b=$(box --name b)
	den exec "$a" -- sh -c 'echo secret >/root/f'
	# Through its sockets and folders, should they be visible at all.
	try den exec "$b" -- sh -c 'find / -xdev -name keeper.sock -o -xdev -name init.sock -o -xdev -name "den.db*" 2>/dev/null'
	want_out ""
	try den exec "$b" -- sh -c 'cat /proc/net/unix | grep -v "^Num" | grep -c sock'
	is "named sockets seen inside" "$out" 0
	try den exec "$b" -- sh -c 'grep -r --include=f secret /root /home /tmp /var /run /mnt /dev/shm 2>/dev/null'
	want_out ""
}

#@ root user
test_hard_links_and_devices_in_the_tree_do_not_survive_deletion() {
	local b
	echo untouched >victim
	b=$(box --mount "$PWD:/host")
	# A box may harm what was given to it to write, and only that; deleting the box must not follow in.
	den exec "$b" -- sh -c 'mkdir -p /root/d && ln -s /host /root/d/link && ln -s / /root/d/root && mkdir /root/d/x && chmod 000 /root/d/x && echo a >/root/d/a && chmod 000 /root/d'
	den rm --force "$b"
	is victim "$(cat victim)" untouched
}

#@ root user
test_an_immutable_or_busy_tree_can_still_be_deleted() {
	local b
	b=$(box)
	den exec "$b" -- sh -c 'mkdir -p /root/d && echo x >/root/d/f && chattr +i /root/d/f 2>/dev/null; chmod 000 /root/d; cd /root/d && (sleep 1000 <f >/dev/null 2>&1 &)'
	den rm --force "$b"
	no_boxes
}

#@ root user range
test_a_box_cannot_lie_to_its_keeper() {
	# Its /proc, its passwd and its shell are the box's to forge; den must neither hang nor crash.
	local b
	b=$(box)
	den exec "$b" -- sh -c 'head -c 20000000 /dev/zero | tr "\0" a >/tmp/p; cp /tmp/p /etc/passwd; cp /tmp/p /etc/group; rm /tmp/p'
	rc=0
	timeout 20 "$DEN" exec "$b" -- echo x >o 2>e || rc=$?
	[ $rc != 124 ] || fail "hangs"
	timeout 20 "$DEN" exec --user 0:0 "$b" -- sh -c 'rm /etc/passwd && mkfifo /etc/passwd && rm /etc/group && ln -s /dev/zero /etc/group'
	rc=0
	timeout 20 "$DEN" exec --user root "$b" -- echo x >o 2>e || rc=$?
	[ $rc != 124 ] || fail "a fifo as /etc/passwd hangs it"
	rc=0
	timeout 20 "$DEN" fs stat "$b" /etc/hostname >o 2>e || rc=$?
	[ $rc != 124 ] || fail "a fifo as /etc/passwd hangs fs"
	timeout 20 "$DEN" exec --user 0:0 "$b" -- sh -c 'rm -rf /etc /usr/bin/env /bin/sh; true' || :
	timeout 20 "$DEN" stop "$b"
	timeout 20 "$DEN" start "$b" || :
	timeout 20 "$DEN" rm --force "$b"
}
