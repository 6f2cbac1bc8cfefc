# Names are no channel, and lead only where a box may go.
source "$TESTS/gate/kit.sh"

# ---- names as a channel --------------------------------------------------------------------------

#@ root user range net
test_names_that_are_not_allowed_are_never_asked_for() {
	local b n
	net_up
	b=$(allowed a.test '*.w.test')
	for n in b.test test evil.test a.test.evil.test xa.test aa.test a.testx w.test www.a.test \
		"$(printf 'x%.0s' {1..63}).evil.test" secret-data.b.test _dmarc.evil.test localhost.evil.test 1.2.3.4.in-addr.arpa; do
		for t in A AAAA TXT MX NULL ANY HTTPS SRV CNAME 'A tcp'; do
			echo "dns $n $t"
		done
	done >tries
	all_say REFUSED "$b" <tries
	want_nothing '^dns'
	want_denial "$b" '"host":"evil.test".*the name is not allowed'
	inside "$b" dig +short +time=2 +tries=1 evil.test TXT
	want_out ''
	inside "$b" dig +time=2 +tries=1 evil.test
	want_out_has 'status: REFUSED'
	inside "$b" dig +tcp +time=2 +tries=1 a.test AAAA
	want_out_has 'status: NOERROR'
	want_out_has 'fdde:6e67:6174:6500:'
}

#@ root user net
test_allowed_names_are_asked_for_in_one_spelling_and_two_types() {
	local b n
	net_up
	b=$(allowed a.test)
	printf 'dns a.test %s\n' TXT MX NULL ANY HTTPS SRV CNAME NS SOA >tries
	all_say NOERROR "$b" <tries
	want_nothing '^dns'
	poke "$b" dns A.tEsT A
	want_out_has '^NOERROR 198\.1[89]\.'
	poke "$b" dns a.TEST AAAA
	want_out_has '^NOERROR fdde:'
	is 'what was asked outside' "$(sort -u "$KIT/log" | grep ^dns | tr '\n' ' ')" 'dns udp a.test A dns udp a.test AAAA '
	# nor do bytes that no host's name has come through
	for n in 'a b.test' 'a\tb.w.test' $'\x01.test' 'ü.test' 'a*.test'; do
		poke "$b" dns "$n" A
		case $out in NOERROR*) fail "'$n': $out" ;; esac
	done
	is 'what was asked outside then' "$(grep -c ^dns "$KIT/log")" 2
}

#@ root user net
test_flood_of_questions_is_no_channel_and_hurts_nobody() {
	local b other n t most
	net_up
	b=$(allowed '*.w.test')
	other=$(allowed a.test)
	t=$(now_ms)
	inside "$b" /usr/bin/python3 -c '
import os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setblocking(False)
for i in range(20000):
    l = os.urandom(10).hex().encode()
    q = struct.pack(">HHHHHH", i & 65535, 0x100, 1, 0, 0, 0) + bytes([len(l)]) + l + b"\1w\4test\0\0\1\0\1"
    try: s.sendto(q, ("198.18.0.1", 53))
    except OSError: pass'
	want_rc 0
	inside "$other" curl -sS -m 2 http://a.test/x
	want_out 'served a.test /x'
	sleep 0.3
	# A burst of 1000, then 500 a second, each asked as A and AAAA.
	n=$(grep -c '^dns .*w.test' "$KIT/log" || :)
	most=$((2 * (1500 + 500 * ($(now_ms) - t) / 1000)))
	at_most 'questions that came through' "$n" $((most > 6000 ? most : 6000))
	soon 5 "$DEN" exec "$b" -- curl -sS -m 2 -o /dev/null http://x.w.test/ || fail 'the box itself has no names any more'
}

#@ root user net
test_other_resolvers_cannot_be_asked() {
	local b a
	net_up
	b=$(allowed a.test)
	for a in $PUB $PRIV 127.0.0.1 127.0.0.53 $PUB6; do
		inside "$b" dig +time=1 +tries=1 +tcp "@$a" evil.test
		[ "$rc" != 0 ] || fail "$a: $(told)"
		inside "$b" dig +time=1 +tries=1 "@$a" evil.test
		[ "$rc" != 0 ] || fail "$a: $(told)"
		says ECONNREFUSED "$b" tcp $a 853
	done
	want_nothing ^dns
}

#@ root user net
test_names_that_do_not_exist_do_not_exist_inside() {
	local b
	net_up
	b=$(allowed '*.test' '*.w.test')
	says NXDOMAIN "$b" dns nowhere.test A
	says SERVFAIL "$b" dns fail.test A
	inside "$b" curl -sS http://nowhere.test/
	want_rc 6
	poke "$b" dns alias.test A
	want_out_has '^NOERROR 198'
	inside "$b" curl -sS http://alias.test/x
	want_out 'served alias.test /x'
}

#@ root user net
test_name_server_that_is_silent_holds_up_nobody_else() {
	local b
	net_up
	zone 'mute.test A silent' 'mute.test AAAA silent'
	b=$(allowed '*.test')
	"$DEN" exec "$b" -- dig +time=20 +tries=1 mute.test >/dev/null 2>&1 &
	soon 3 came '^dns udp mute.test'
	inside "$b" curl -sS -m 2 http://a.test/x
	want_out 'served a.test /x'
}

# ---- where names lead ----------------------------------------------------------------------------

#@ root user range net
test_names_that_lead_to_private_addresses_are_refused() {
	local b n
	net_up
	b=$(allowed '*.test' '*.test:7000')
	for n in priv meta loop loop6 mapped ula; do
		says REFUSED "$b" dns $n.test A
		inside "$b" curl -sS -m 3 http://$n.test/
		want_rc 6
		want_denial "$b" "\"host\":\"$n.test\".*not public"
	done
	# nor is the host's loopback a name's because a port of it is allowed by its own
	b=$(allowed loop.test host:80)
	inside "$b" curl -sS -m 3 http://loop.test/
	want_rc 6
	b=$(allowed mixed.test)
	# of several addresses, the public one alone
	inside "$b" curl -sS -m 3 http://mixed.test/x
	want_out 'served mixed.test /x'
	want_came "^http $PUB:80 GET /x mixed.test"
	want_nothing "^open ($PRIV|$META|127|::|fd00|::ffff)"
}

#@ root user net
test_private_address_of_a_name_needs_a_range_that_opens_it() {
	local b
	net_up
	b=$(allowed priv.test:80 priv.test:7000 10.9.0.0/16:80)
	inside "$b" curl -sS http://priv.test/x
	want_out 'served priv.test /x'
	poke "$b" tcp priv.test 7000 out
	want_out_has '^(ECONNRESET|end|EPIPE)$'
	want_denial "$b" '"host":"priv.test","address":"10.9.8.7","port":7000,.*not public'
	want_nothing "^open $PRIV:7000"
	b=$(allowed priv.test:80 10.9.0.0/16:7000)
	inside "$b" curl -sS -m 3 -i http://priv.test/
	want_out_has '^HTTP/1.1 502'
	want_out_has 'no address that may be reached'
	want_denial "$b" '"host":"priv.test","address":"10.9.8.7","port":80,.*not public'
	: >"$KIT/log"
	# a range of all addresses is not meant for these
	b=$(allowed priv.test 0.0.0.0/0:80)
	poke "$b" tcp priv.test 80 out
	[ "$out" != open ] || fail "$out"
	poke "$b" http priv.test 80 'GET / HTTP/1.1\r\nHost: priv.test\r\n\r\n'
	not grep -q served <<<"$out" || fail "$out"
	poke "$b" http $META 80 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
	not grep -q served <<<"$out" || fail "$out"
	want_nothing "^open $META"
}

#@ root user range net
test_connection_goes_to_the_very_address_that_was_checked() {
	local b i
	net_up
	# Public for the first question, private ever after.
	for i in 1 2 3 4 5; do
		zone "turn$i.test A $PUB then $PRIV" "back$i.test A $PRIV then $PUB"
	done
	b=$(allowed '*.test')
	for i in 1 2 3 4 5; do
		inside "$b" curl -sS -m 3 "http://turn$i.test/x"
		want_out "served turn$i.test /x"
	done
	# One that is private when it is looked at is not let through because it is public later.
	for i in 1 2 3; do
		inside "$b" curl -sS -m 3 "http://back$i.test/x"
		want_rc 6
	done
	want_nothing "^open $PRIV"
	is 'where all went' "$(grep ^open "$KIT/log" | sort -u)" "open $PUB:80"
}

#@ root user net
test_name_that_changed_since_is_checked_again() {
	local b at
	net_up
	zone "turn.test A $PUB then $PRIV"
	b=$(allowed turn.test)
	inside "$b" curl -sS -m 3 http://turn.test/x
	want_out 'served turn.test /x'
	at=$(den exec "$b" -- getent ahostsv4 turn.test | awk 'NR == 1 { print $1 }')
	# A change makes the gate forget what it knew of names; the box still has the address.
	den policy set "$b" --allow a.test >/dev/null
	poke "$b" http "$at" 80 'GET / HTTP/1.1\r\nHost: turn.test\r\n\r\n'
	not grep -q served <<<"$out" || fail "$out"
	want_denial "$b" '"host":"turn.test","address":"10.9.8.7","port":80,.*not public'
	want_nothing "^open $PRIV"
}

# ---- ranges of addresses -------------------------------------------------------------------------

#@ root user range net
test_range_opens_its_addresses_and_port_for_tcp_alone() {
	local b
	net_up
	b=$(allowed 10.9.0.0/16:7000 "[fd00::]/8:80")
	says hello "$b" tcp $PRIV 7000 hello
	inside "$b" curl -sS 'http://[fd00::7]/x'
	want_out 'served [fd00::7] /x'
	says ECONNREFUSED "$b" tcp $PRIV 80
	says ECONNREFUSED "$b" tcp fd00::7 7000
	says ECONNREFUSED "$b" udp $PRIV 7000 out
	says ECONNREFUSED "$b" tcp $PUB 7000
	says ECONNREFUSED "$b" tcp 10.10.0.1 7000
	want_nothing '^udp'
	want_nothing "^open $PRIV:80"
	want_journal "$b" '"kind":"connection".*"address":"10.9.8.7","port":7000,.*"rule":"10.9.0.0/16:7000"'
}

#@ root user range net
test_range_for_udp_opens_udp_alone() {
	local b
	net_up
	b=$(allowed 10.9.8.7:9999/udp "[fd00::7]:7000/udp")
	says 'echo hello' "$b" udp $PRIV 9999 hello
	says 'echo six' "$b" udp fd00::7 7000 six
	says ECONNREFUSED "$b" udp $PRIV 7000 out
	says ECONNREFUSED "$b" tcp $PRIV 9999
	# another address at a port that some rule opens: no answer, and a denial
	says silent "$b" udp $PUB 9999 out
	want_nothing "^udp $PUB"
	want_denial "$b" "\"address\":\"$PUB\",\"port\":9999,.*UDP"
	# two who talk to the same place are told apart
	inside "$b" /usr/bin/python3 -c '
import socket
s = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for i in range(20)]
for i, x in enumerate(s): x.settimeout(3); x.connect(("10.9.8.7", 9999)); x.send(b"n%d" % i)
assert [x.recv(99) for x in s] == [b"echo n%d" % i for i in range(20)]
s[0].send(b"x" * 9000)
assert len(s[0].recv(10000)) == 9005'
	want_rc 0
}

#@ root user net
test_denied_addresses_win_over_ranges_and_names() {
	local b
	net_up
	b=$(net_box --allow 10.0.0.0/8:7000 --allow a.test --allow priv.test:80 --allow 10.0.0.0/8:80 --deny 10.9.8.0/24 --deny $PUB)
	poke "$b" tcp $PRIV 7000 out
	want_out_has '^(ECONNREFUSED|ECONNRESET|end)$'
	inside "$b" curl -sS -m 3 -i http://priv.test/
	want_out_has '^HTTP/1.1 502'
	# of a.test's addresses only the other is left
	inside "$b" curl -sS -m 3 http://a.test/x
	want_out 'served a.test /x'
	want_came "^http $PUB6:80"
	want_nothing "^open ($PRIV|$PUB:)"
}
