# Policies: what they say, how they change under a running box, what limits hold, what is told about it.
source "$TESTS/gate/kit.sh"

# ---- rules ---------------------------------------------------------------------------------------

#@ root user range net
test_deny_wins_over_every_allow() {
	local b
	net_up
	b=$(net_box --allow '*.w.test' --allow a.test --allow bad.w.test --allow a.test:7000 --deny bad.w.test --deny '*.x.w.test' --deny a.test:80)
	inside "$b" curl -sS http://good.w.test/
	want_out 'served good.w.test /'
	inside "$b" curl -sS http://bad.w.test/
	want_rc 6
	inside "$b" curl -sS http://y.x.w.test/
	want_rc 6
	says ECONNREFUSED "$b" tcp a.test 80
	says open "$b" tcp a.test 7000
	says REFUSED "$b" dns bad.w.test A
	want_nothing '^dns .*(bad|y\.x)\.w'
	want_denial "$b" '"host":"bad.w.test",.*"rule":"bad.w.test"'
}

#@ root user range net
test_preset_open_is_all_that_is_public_and_nothing_else() {
	local b
	net_up
	b=$(net_box --net open)
	inside "$b" curl -sS http://a.test/
	want_out 'served a.test /'
	inside "$b" curl -sS --cacert /share/cert.pem https://six.test/
	want_out 'served six.test /'
	inside "$b" curl -sS http://$PUB/
	want_out "served $PUB /"
	inside "$b" curl -sS http://priv.test/
	want_rc 6
	: >"$KIT/log"
	all_say 'ECONNREFUSED|ECONNRESET|end|EPIPE|ENETUNREACH|EAI .*' "$b" <<-EOF
		tcp $PRIV 7000 out
		tcp $META 80 GET
		tcp fd00::7 7000 out
		tcp host.den 80 out
		tcp 127.0.0.1 80
	EOF
	says ECONNREFUSED "$b" udp $PUB 443 quic
	want_nothing "^(open|udp|data)"
	# Where one name is denied, its address is no way around that.
	b=$(net_box --net open --deny b.test)
	inside "$b" curl -sS http://a.test/
	want_out 'served a.test /'
	inside "$b" curl -sS http://b.test/
	want_rc 6
	says ECONNREFUSED "$b" tcp $PUB2 80
	poke "$b" http a.test 80 'GET / HTTP/1.1\r\nHost: b.test\r\n\r\n'
	want_out_has '^HTTP/1.1 403'
	says 'alert 112' "$b" hello a.test 443 sni=b.test
	want_nothing "^open $PUB2"
}

#@ root user
test_presets_are_printed_and_misspelt_ones_named() {
	local p
	for p in registries git llm open; do
		try den policy show $p
		want_rc 0
		want_out_has "^# preset $p: ."
		den policy show --json $p | is_json
	done
	try den policy show
	want_out_has '^# preset git'
	try den create --preset registrys
	want_rc 2
	want_err_has "'registries'"
	no_boxes
	den policy schema | is_json
}

#@ root user
test_rules_that_cannot_be_meant_are_refused_with_the_right_way() {
	local r
	while read -r r want; do
		try den create --allow "$r"
		[ "$rc" = 2 ] || fail "$r: $(told)"
		want_err_has "$want"
	done <<-'EOF'
		* preset open
		http://a.test no URL
		a.test/path path
		a.test:0 port
		a.test:70000 port
		a.test:80-70 smaller
		a.test:ssh number
		a.test:443/udp address
		10.1.2.3 port
		10.1.2.3/16:80 10.1.0.0/16
		10.1.0.0/33:80 bits
		host 8080
		host:* port
		localhost:80 host:PORT
		0x7f.1:80 .
		2130706433:80 .
		.w.test \*\.w\.test
		a..test .
		*.*.test .
		[::ffff:1.2.3.4]:80 IPv4
		x.den:80 host:PORT
		a.test:80:rare .
	EOF
	is boxes "$(boxes)" ''
}

#@ root user
test_policy_file_with_a_misspelt_key_is_refused_with_the_nearest() {
	local json want
	while IFS='|' read -r json want; do
		printf '%s' "$json" >f.json
		try den create --policy ./f.json
		[ "$rc" = 2 ] || fail "$json: $(told)"
		want_err_has "$want"
	done <<-'EOF'
		{"alow": []}|'allow'
		{"version": 1, "Allow": ["a.test"]}|'allow'
		{"limits": {"rates": "1M"}}|'rate'
		{"limits": {"connection": 1}}|'connections'
		{"secrets": [{"nam": "X"}]}|'name'
		{"version": 2}|version
		{"allow": "a.test"}|list
		{"allow": [1]}|allow
		{"limits": {"rate": "fast"}}|rate
		{"limits": {"connections": -1}}|connections
		{"resolver": ["ns.test"]}|resolver
		{"allow": ["a.test"], "allow": ["b.test"]}|duplicate
		{"allow": ["a.test"]} x|JSON
		[]|object
		{|JSON
	EOF
	try den create --policy ./nowhere.json
	want_rc 3
	try den create --policy never-saved
	want_rc 3
	is boxes "$(boxes)" ''
}

# ---- changes -------------------------------------------------------------------------------------

# talkers BOX HOST:PORT...: a program in the box that talks over these connections, again and again, and says
# in the file talk when one is dead
talkers() {
	"$DEN" exec "$1" -- /usr/bin/python3 -u -c '
import socket, sys, threading, time
socks = []
for a in sys.argv[1:]:
    host, port = a.rsplit(":", 1)
    s = socket.create_connection((host, int(port)))
    s.sendall(b"first\n")
    s.recv(100)
    socks.append((a, s))
print("up")
while socks:
    for a, s in list(socks):
        try:
            s.sendall(b"tick\n")
            s.settimeout(2)
            if not s.recv(100): raise OSError
        except OSError:
            print("dead", a)
            socks.remove((a, s))
    time.sleep(0.01)' "${@:2}" >talk 2>&1 &
	TALKER=$!
	soon 5 grep -q '^up' talk || fail "$(cat talk)"
}

#@ root user range net
test_stricter_policy_ends_connections_before_the_call_returns() {
	local b n
	net_up
	b=$(allowed a.test:7000 b.test:7000 "$PRIV:7000")
	is generation "$(generation "$b")" 1
	talkers "$b" a.test:7000 b.test:7000 $PRIV:7000
	sleep 0.1
	try den policy set "$b" --drop a.test:7000 --deny $PRIV
	# What reached the servers by now is all that may reach them.
	n=$(grep -c "^data ($PUB|$PRIV):7000" -E "$KIT/log")
	want_rc 0
	want_out_has '^generation 2, 2 connections ended$'
	is generation "$(generation "$b")" 2
	soon 3 grep -q '^dead a.test:7000' talk || fail "$(cat talk)"
	soon 3 grep -q "^dead $PRIV:7000" talk || fail "$(cat talk)"
	sleep 0.2
	is 'pieces that came later' "$(grep -c "^data ($PUB|$PRIV):7000" -E "$KIT/log")" "$n"
	# the one that is still allowed did not notice
	not grep -q 'dead b.test' talk || fail "$(cat talk)"
	n=$(grep -c "^data $PUB2:7000" "$KIT/log")
	sleep 0.2
	[ "$(grep -c "^data $PUB2:7000" "$KIT/log")" -gt "$n" ] || fail 'b.test is silent'
	want_journal "$b" '"kind":"connection".*"host":"a.test".*no longer allows'
	kill $TALKER
}

#@ root user net
test_every_kind_of_connection_ends_when_the_policy_says_so() {
	local b
	net_up
	b=$(net_box --allow a.test:443:raw --allow b.test:80 --allow "$PRIV:9999/udp" --allow host:7000 --proxy-env --allow six.test)
	mkfifo go
	"$DEN" exec "$b" -- /usr/bin/python3 -u -c '
import socket, sys, time
raw = socket.create_connection(("a.test", 443))
http = socket.create_connection(("b.test", 80))
http.sendall(b"GET /1 HTTP/1.1\r\nHost: b.test\r\n\r\n"); http.recv(1000)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.connect(("10.9.8.7", 9999)); udp.send(b"one"); udp.recv(100)
host = socket.create_connection(("host.den", 7000)); host.sendall(b"one\n"); host.recv(100)
proxy = socket.create_connection(("198.18.0.1", 3128)); proxy.sendall(b"CONNECT six.test:80 HTTP/1.1\r\nHost: six.test:80\r\n\r\n"); proxy.recv(1000)
print("up")
sys.stdin.readline()
for n, s, t in (("raw", raw, b"\x16\x03\x01\0\x05late"), ("http", http, b"GET /late HTTP/1.1\r\nHost: b.test\r\n\r\n"), ("host", host, b"late\n"),
    ("proxy", proxy, b"GET /late HTTP/1.1\r\nHost: six.test\r\n\r\n"), ("udp", udp, b"late")):
    s.settimeout(0.5)
    try: s.send(t); print(n, "alive" if s.recv(100) else "dead")
    except (socket.timeout, TimeoutError): print(n, "silent")
    except OSError: print(n, "dead")
print("end")' <go >talk 2>&1 &
	exec 8>go
	soon 5 grep -q '^up' talk || fail "$(cat talk)"
	den policy set "$b" --clear --allow x.test >/dev/null
	: >"$KIT/log"
	echo go >&8
	soon 5 grep -q '^end' talk || fail "$(cat talk)"
	not grep -q alive talk || fail "$(cat talk)"
	want_nothing late
	exec 8>&-
}

#@ root user range net
test_policy_opens_and_closes_a_running_box() {
	local b g
	net_up
	b=$(net_box)
	inside "$b" curl -sS -m 3 http://a.test/
	want_rc 6
	den policy set "$b" a.test >/dev/null
	inside "$b" curl -sS -m 3 http://a.test/
	want_out 'served a.test /'
	g=$(gate_pid "$b")
	den policy set "$b" --allow b.test >/dev/null
	inside "$b" curl -sS -m 3 http://a.test/ http://b.test/
	want_out "$(printf 'served a.test /\nserved b.test /')"
	is 'the gate' "$(gate_pid "$b")" "$g"
	den policy set "$b" --net none >/dev/null
	inside "$b" curl -sS -m 3 http://a.test/
	want_rc 6
	dead "$g" || fail 'a gate for nothing'
	is generation "$(generation "$b")" 4
	# as it was left, it comes up again
	den stop "$b"
	den policy set "$b" --file ./p.json --allow b.test >/dev/null
	den start "$b"
	inside "$b" curl -sS -m 3 http://b.test/
	want_out 'served b.test /'
	inside "$b" curl -sS -m 3 http://a.test/
	want_rc 6
	at_least generation "$(generation "$b")" 5
}

#@ root user net
test_refused_change_changes_nothing() {
	local b
	net_up
	b=$(allowed a.test)
	try den policy set "$b" --allow 'http://b.test'
	want_rc 2
	try den policy set "$b" --drop c.test
	want_rc 3
	try den policy set "$b"
	want_rc 2
	is generation "$(generation "$b")" 1
	inside "$b" curl -sS http://a.test/
	want_out 'served a.test /'
}

#@ root user range net
test_stored_policy_is_shared_by_boxes_and_reaches_them_all() {
	local b c d
	net_up
	echo '{"version": 1, "resolver": ["127.0.0.1"], "allow": ["a.test"]}' >s.json
	den policy save shared ./s.json
	is listed "$(den policy ls -q)" shared
	b=$(den create --policy shared)
	c=$(den create --policy shared)
	d=$(allowed a.test)
	for x in $b $c $d; do
		inside "$x" curl -sS http://a.test/
		want_out 'served a.test /'
	done
	den policy save shared - <<<'{"version": 1, "resolver": ["127.0.0.1"], "allow": ["b.test"]}'
	for x in $b $c; do
		inside "$x" curl -sS http://b.test/
		want_out 'served b.test /'
		inside "$x" curl -sS http://a.test/
		want_rc 6
		is generation "$(generation $x)" 2
	done
	inside "$d" curl -sS http://a.test/
	want_out 'served a.test /'
	try den policy rm shared
	want_rc 4
	want_err_has 'follow'
	den policy set "$b" --net none >/dev/null
	den rm --force "$c"
	den policy rm shared
	is listed "$(den policy ls -q)" ''
	try den policy save bad - <<<'{"alow": []}'
	want_rc 2
	try den policy save open - <<<'{}'
	want_rc 2
}

# ---- limits --------------------------------------------------------------------------------------

#@ root user net timeout=20
test_rate_limit_holds_for_all_connections_together() {
	local b began took
	net_up
	b=$(net_box --allow a.test --allow a.test:7000 --net-rate 400K)
	began=$(now_ms)
	inside "$b" sh -c 'for i in 1 2 3 4; do curl -sS -o /dev/null http://a.test/bytes/200000 & done; wait'
	took=$(($(now_ms) - began))
	want_rc 0
	# 800,000 bytes at 409,600 a second, less a first tenth
	at_least 'ms for 800,000 bytes' $took 1300
	at_most 'ms for 800,000 bytes' $took 6000
}

#@ root user net
test_byte_limit_ends_everything_and_says_so() {
	local b
	net_up
	b=$(net_box --allow a.test --net-bytes 300K)
	inside "$b" curl -sS -o /dev/null http://a.test/bytes/100000
	want_rc 0
	inside "$b" sh -c 'curl -sS http://a.test/bytes/3000000 | wc -c'
	at_most 'bytes that came' "$(tail -n 1 <<<"$out")" 310000
	inside "$b" curl -sS -m 3 http://a.test/
	[ "$rc" != 0 ] || fail "$(told)"
	want_denial "$b" 'limit on bytes.*limits.bytes'
	# more is allowed: it goes on
	den policy set "$b" --net-bytes 10M >/dev/null
	inside "$b" curl -sS -m 3 http://a.test/
	want_out 'served a.test /'
}

#@ root user net
test_byte_limit_holds_when_the_gate_or_the_box_starts_anew() {
	local b
	net_up
	b=$(net_box --allow a.test --net-bytes 300K)
	inside "$b" sh -c 'curl -sS -o /dev/null http://a.test/bytes/3000000; :'
	kill -9 "$(gate_pid "$b")"
	soon 5 gate_pid "$b" >/dev/null
	inside "$b" sh -c 'curl -sS -m 3 http://a.test/bytes/200000 | wc -c'
	at_most 'bytes after the gate was killed' "$(tail -n 1 <<<"$out")" 10000
	den stop "$b"
	den start "$b"
	inside "$b" sh -c 'curl -sS -m 3 http://a.test/bytes/200000 | wc -c'
	at_most 'bytes after a new start' "$(tail -n 1 <<<"$out")" 10000
}

#@ root user net
test_connection_limit_refuses_the_next_and_no_other() {
	local b
	net_up
	b=$(net_box --allow a.test:7000 --net-conns 3)
	inside "$b" /usr/bin/python3 -c '
import socket, time
def new():
    s = socket.create_connection(("a.test", 7000)); s.settimeout(3)
    try:
        s.sendall(b"x\n")
        return s if s.recv(10) else None
    except OSError: return None
held = [new() for i in range(3)]
assert all(held), held
assert new() is None
held.pop().close()
for i in range(50):
    s = new()
    if s: break
    time.sleep(0.02)
assert s
for h in held: h.sendall(b"y\n"); assert h.recv(10) == b"y\n"'
	want_rc 0
	want_denial "$b" 'too many connections at once.*limits.connections'
}

# ---- what is told --------------------------------------------------------------------------------

#@ root user range net
test_denials_are_told_inside_and_cannot_be_changed_there() {
	local b t
	net_up
	b=$(allowed a.test)
	is denials "$(denials "$b")" ''
	inside "$b" curl -sS http://evil.test/
	poke "$b" hello a.test 443 sni=b.test
	want_denial "$b" '"host":"evil.test"'
	denials "$b" | is_json lines
	denials "$b" >before
	for t in 'echo x >/run/den/denials' 'rm -f /run/den/denials' 'mv /run/den/denials /tmp/' 'echo x >/run/den/new' 'chmod 777 /run/den/denials' \
		'mount -o remount,rw /run/den' 'rm -rf /run/den'; do
		inside "$b" sh -c "$t"
		[ "$rc" != 0 ] || fail "$t"
	done
	denials "$b" | diff before - || fail 'they changed'
}

#@ root user net
test_flood_of_denials_is_a_few_lines() {
	local b n
	net_up
	b=$(allowed a.test)
	inside "$b" /usr/bin/python3 -c '
import socket, struct
q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\4evil\4test\0\0\1\0\1"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
s.connect(("198.18.0.1", 53))
for i in range(3000):
    s.send(q)
    try: s.recv(100)
    except OSError: pass'
	want_denial "$b" evil
	sleep 0.2
	at_most lines "$(journal "$b" | grep -c '"host":"evil.test"')" 3
	at_most 'lines inside' "$(denials "$b" | wc -l)" 3
}

#@ root user range net
test_flood_of_denied_names_leaves_room_for_what_comes_after() {
	local b n
	net_up
	b=$(allowed a.test)
	inside "$b" /usr/bin/python3 -c '
import os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
s.connect(("198.18.0.1", 53))
answers = 0
for i in range(3000):
    name = os.urandom(8).hex().encode()
    s.send(struct.pack(">HHHHHH", i, 0x100, 1, 0, 0, 0) + b"\x10" + name + b"\4evil\4test\0\0\1\0\1")
    try: answers += s.recv(100)[3] & 15 == 5
    except OSError: pass
print(answers)'
	at_least refused "$out" 2900
	# the others are in a line with their number; nothing is left out of the count
	want_journal "$b" '"kind":"denial","reason":"other denials, too many to tell","count":[0-9]+'
	told() { journal "$b" | sed -n '/"kind":"denial"/s/.*"count":\([0-9]*\).*/\1/p' | awk '{ n += $1 } END { exit n < 2900 }'; }
	soon 8 told || fail "denials that were told or counted: $(journal "$b" | grep -o '"count":.*,"g' | tail -5)"
	n=$(journal "$b" | grep -c '"kind":"denial"')
	at_most lines "$n" 800
	inside "$b" curl -sS http://a.test/
	want_journal "$b" '"kind":"connection","host":"a.test",.*"port":80,'
	try den journal --kind connection "$b"
	want_out_has 'a.test:80'
	journal "$b" | is_json lines
}

#@ root user range net
test_journal_has_each_connection_and_denial() {
	local b
	net_up
	b=$(allowed a.test a.test:7000)
	poke "$b" tcp a.test 7000 $'0123456789\n'
	want_journal "$b" '"kind":"connection","host":"a.test","address":"192.175.48.5","port":7000,"bytes_out":11,"bytes_in":11,"ms":[0-9]+,"rule":"a.test:7000"'
	inside "$b" curl -sS http://a.test/
	want_journal "$b" '"kind":"connection","host":"a.test","address":"192.175.48.5","port":80,'
	inside "$b" curl -sS http://b.test/
	want_journal "$b" '"kind":"denial","host":"b.test".*"reason":"the name is not allowed"'
	den policy set "$b" b.test >/dev/null
	want_journal "$b" '"kind":"policy".*"generation":2'
	journal "$b" | is_json lines
}

#@ root user range net
test_denials_are_listed_by_the_verb() {
	local b
	net_up
	b=$(net_box --name quiet --allow a.test)
	try den denials quiet
	want_rc 0
	inside "$b" curl -sS http://evil.test/
	want_denial "$b" evil
	try den denials quiet
	want_rc 0
	want_out_has 'evil.test'
	try den denials --json quiet
	want_out_has '"host": ?"evil.test"'
}

# ---- sandbox-runtime's settings ------------------------------------------------------------------

#@ root user range net
test_srt_settings_give_the_same_way_out() {
	local b
	net_up
	echo '{"network": {"allowedDomains": ["a.test", "*.w.test"], "deniedDomains": ["bad.w.test"]}, "filesystem": {"allowWrite": ["."], "denyRead": [], "denyWrite": []}}' >srt.json
	b=$(den create --srt-settings srt.json --policy ./p.json --mount "$TESTS/gate:/gate:ro")
	inside "$b" curl -sS http://a.test/ http://x.w.test/
	want_out "$(printf 'served a.test /\nserved x.w.test /')"
	inside "$b" curl -sS http://bad.w.test/
	want_rc 6
	inside "$b" curl -sS http://b.test/
	want_rc 6
	# without a port, srt means all
	poke "$b" tcp a.test 7000 $'hi\n'
	want_out hi
	inside "$b" sh -c "echo new >$TMP/from-the-box"
	is 'the shared directory' "$(cat from-the-box)" new
}

#@ root user
test_srt_settings_that_srt_ignores_are_errors() {
	local json want
	while IFS='|' read -r json want; do
		printf '%s' "$json" >s.json
		try den create --srt-settings s.json
		[ "$rc" != 0 ] || fail "$json: $(told)"
		want_err_has "$want"
	done <<-'EOF'
		{"network": {"allowedDomain": ["a.test"]}}|'allowedDomains'
		{"networks": {}}|'network'
		{"network": {"allowedDomains": ["https://a.test/x"]}}|write 'a.test'
		{"network": {"allowedDomains": ["*"]}}|allowAllDomains
		{"network": {"allowedDomains": ["*.com*"]}}|front
		{"network": {"allowedDomains": ["*.com"]}}|too broad
		{"network": {"allowedDomains": "a.test"}}|list
		{"network": {"allowedDomains": ["localhost"]}}|host:PORT
		{"network": {"httpProxyPort": 3128}}|host:PORT
		{"filesystem": {"disabled": true}}|--mount
		{"filesystem": {"denyread": []}}|'denyRead'
		{"network": {"allowedDomains": ["a.test"]},}|JSON
	EOF
	try den create --srt-settings nowhere.json
	want_rc 3
	is boxes "$(boxes)" ''
}

#@ root user
test_changes_at_the_same_time_are_all_kept() {
	local b i
	b=$(den create --allow a.test)
	for i in 1 2 3 4 5 6 7 8; do
		den policy set -q "$b" --deny "d$i.test" &
	done
	wait
	is 'denied names' "$(den policy show "$b" 2>/dev/null | grep -c 'd[0-9]\.test')" 8
}
