# The way out, below every program: what is not allowed is refused by the kernel or by the gate, at once;
# nothing of it reaches a server; no question for it reaches a name server.
source "$TESTS/gate/kit.sh"

# ---- what is allowed works -----------------------------------------------------------------------

#@ root user range net
test_allowed_name_works_with_curl_without_a_proxy() {
	local b
	net_up
	b=$(allowed a.test)
	inside "$b" curl -sS http://a.test/x
	want_rc 0
	want_out 'served a.test /x'
	inside "$b" curl -sS --cacert /share/cert.pem https://a.test/y
	want_out 'served a.test /y'
	inside "$b" sh -c 'env | grep -i proxy'
	want_rc 1
	want_came "^http $PUB:80 GET /x a.test"
	want_came "^tls $PUB:443 a.test"
}

#@ root user range net
test_run_has_a_way_out_and_leaves_no_gate_behind() {
	net_up
	try den run --policy ./p.json --allow a.test -- curl -sS http://a.test/x
	want_rc 0
	want_out 'served a.test /x'
	try den run --policy ./p.json -- curl -sS http://a.test/y
	want_rc 6
	not came /y || fail 'without a rule'
}

#@ user range net
test_host_resolver_is_asked_where_the_policy_names_none() {
	local b
	net_up
	b=$(den create --allow a.test)
	inside "$b" curl -sS http://a.test/x
	want_out 'served a.test /x'
	want_came '^dns udp a.test A$'
}

#@ root user net
test_allowed_name_works_with_node_python_and_openssl() {
	local b
	net_up
	b=$(allowed a.test)
	inside "$b" env NODE_EXTRA_CA_CERTS=/share/cert.pem node -e \
		'require("https").get("https://a.test/node", r => r.pipe(process.stdout))'
	want_out 'served a.test /node'
	inside "$b" /usr/bin/python3 -c '
import ssl, urllib.request
c = ssl.create_default_context(cafile="/share/cert.pem")
print(urllib.request.urlopen("https://a.test/python", context=c).read().decode(), end="")'
	want_out 'served a.test /python'
	inside "$b" sh -c 'printf "GET /openssl HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n" |
		timeout 1 openssl s_client -quiet -verify_return_error -CAfile /share/cert.pem -servername a.test \
			-connect a.test:443 2>/dev/null'
	want_out_has 'served a.test /openssl'
}

#@ root user net
test_any_protocol_works_on_an_allowed_name_and_port() {
	local b
	net_up
	b=$(allowed a.test:7000 a.test:25)
	poke "$b" tcp a.test 7000 $'hello\n'
	want_out hello
	inside "$b" sh -c 'printf "\0\0\0\10\4\322\26\57" | nc -q 1 a.test 7000 | od -An -tx1'
	want_out ' 00 00 00 08 04 d2 16 2f'
	# the server speaks first
	inside "$b" /usr/bin/python3 -c '
import socket
s = socket.create_connection(("a.test", 25))
print(s.recv(100).decode().strip())
s.sendall(b"EHLO x\r\n")
print(s.recv(100).decode().strip())'
	want_out "$(printf '220 first word\nEHLO x')"
	inside "$b" sh -c 'echo from-nc | nc -q 1 a.test 7000'
	want_out from-nc
	want_came "^data $PUB:7000 .*from-nc"
}

#@ root user net
test_server_that_speaks_without_end_is_heard_while_the_box_has_said_half_a_word() {
	local b
	net_up
	b=$(allowed a.test:19)
	# Slowly enough that the gate has to wait for room several times.
	inside "$b" /usr/bin/python3 -c '
import socket, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
s.connect(("a.test", 19))
s.settimeout(3)
assert s.recv(1)
s.sendall(b"\x16\x03\x01\x02")
got = 0
while got < 3000000:
    n = len(s.recv(65536))
    assert n, got
    got += n
    if got % 7 == 0: time.sleep(0.01)
print("all")'
	want_out all
}

#@ root user net
test_git_works_over_http() {
	local b port
	net_up
	git init -q --bare repo.git
	git -c init.defaultBranch=main init -q work
	git -C work -c user.name=t -c user.email=t@t commit -q --allow-empty -m one
	git -C work push -q ../repo.git HEAD:refs/heads/main
	git -C repo.git update-server-info
	(cd "$TMP" && exec /usr/bin/python3 -m http.server --bind $PUB 8081 >/dev/null 2>&1) &
	soon 5 curl -sfo /dev/null http://$PUB:8081/
	b=$(allowed a.test:8081)
	inside "$b" git clone -q http://a.test:8081/repo.git /root/clone
	want_rc 0
	inside "$b" git -C /root/clone log --format=%s origin/main
	want_out one
	inside "$b" git clone -q http://b.test:8081/repo.git /root/other
	want_err_has 'could not resolve'
}

#@ root user net
test_ssh_and_git_over_ssh_work() {
	local b
	net_up
	[ -x /usr/sbin/sshd ] || skip 'no sshd on this machine'
	ssh-keygen -q -t ed25519 -N '' -f host-key
	ssh-keygen -q -t ed25519 -N '' -f user-key
	cp user-key "$KIT/share/key"
	chmod 644 "$KIT/share/key"
	cat >sshd.conf <<-EOF
		Port 22
		ListenAddress $PUB
		HostKey $TMP/host-key
		AuthorizedKeysFile $TMP/user-key.pub
		StrictModes no
		UsePAM no
		PidFile none
		PermitRootLogin yes
	EOF
	if [ "$VARIANT" = root ] && mkdir /run/sshd 2>/dev/null; then # it insists
		trap 'rmdir /run/sshd; finish' EXIT
	fi
	/usr/sbin/sshd -D -e -f sshd.conf 2>sshd.log &
	git -c init.defaultBranch=main init -q work
	git -C work -c user.name=t -c user.email=t@t commit -q --allow-empty -m one
	b=$(allowed a.test:22)
	den exec "$b" -- sh -c 'cp /share/key /root/key && chmod 600 /root/key'
	local opts="-i /root/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
	soon 5 grep -q 'listening' sshd.log
	# shellcheck disable=SC2086
	inside "$b" ssh $opts "$(id -un)@a.test" echo over ssh
	[ "$rc" = 0 ] || fail "$(told)$(printf '\n'; cat sshd.log)"
	want_out 'over ssh'
	inside "$b" env GIT_SSH_COMMAND="ssh $opts" git clone -q "ssh://$(id -un)@a.test$TMP/work" /root/clone
	want_rc 0
	# shellcheck disable=SC2086
	inside "$b" ssh $opts "$(id -un)@b.test" echo out
	want_rc 255
	want_err_has 'resolve'
}

#@ root user net
test_ipv6_is_a_way_as_good_as_ipv4() {
	local b
	net_up
	b=$(allowed six.test)
	inside "$b" curl -sS -6 http://six.test/x
	want_out 'served six.test /x'
	inside "$b" curl -sS -4 http://six.test/x
	want_out 'served six.test /x'
	want_came "^http $PUB6:80 GET /x six.test"
	inside "$b" curl -sS --cacert /share/cert.pem -6 https://six.test/y
	want_out 'served six.test /y'
}

#@ root user range net
test_host_service_is_reached_by_name_and_port_alone() {
	local b
	net_up
	b=$(allowed host:8080)
	inside "$b" curl -sS http://host.den:8080/x
	want_out 'served host.den:8080 /x'
	want_came '^http 127.0.0.1:8080 GET /x'
	says ECONNREFUSED "$b" tcp host.den 80
	says ECONNREFUSED "$b" tcp host.den 7000
	says ECONNREFUSED "$b" tcp 127.0.0.1 8080
	says ECONNREFUSED "$b" tcp ::1 8080
	says ECONNREFUSED "$b" tcp localhost 8080
	want_nothing '^open .*:(80|7000)$'
	want_nothing '^dns '
}

# ---- no way around -------------------------------------------------------------------------------

#@ root user range net
test_addresses_are_refused_at_once_however_they_are_spelt() {
	local b a
	net_up
	b=$(allowed a.test)
	for a in $PUB $PUB2 $PUB6 $PRIV $META fd00::7 127.0.0.1 0x7f.1 2130706433 017700000001 127.1 0 ::1 ::ffff:127.0.0.1 \
		::ffff:$PUB ::ffff:$META 0xc0af3005 192.11481093 10.1.2.3 172.16.0.1 192.168.0.1 100.64.0.1 \
		64:ff9b::a09:807 2002:a09:807::1 198.18.0.2 198.18.77.5 fdde:6e67:6174:6500::c612:105 fe80::1; do
		printf 'tcp %s 80\ntcp %s 443\n' $a $a
	done >tries
	all_say 'ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|EINVAL|EADDRNOTAVAIL|EAI .*' "$b" <tries
	for a in "$PUB" "[$PUB6]" 0xc0af3005 3232706565 "[::ffff:$PUB]"; do
		inside "$b" curl -sS -m 3 -H 'Host: a.test' "http://$a/"
		[ "$rc" = 7 ] || [ "$rc" = 6 ] || fail "curl $a: $(told)"
	done
	want_nothing '^(open|data|http)'
}

#@ root user net
test_refusal_takes_no_time() {
	local b
	net_up
	b=$(allowed a.test)
	inside "$b" /usr/bin/python3 -c '
import socket, time
t = time.monotonic()
for i in range(200):
    s = socket.socket()
    assert s.connect_ex(("192.175.48.6", 443)) == 111
    s.close()
print(int((time.monotonic() - t) * 1000))'
	want_rc 0
	at_most 'ms for 200 refusals' "$out" 500
}

#@ root user range net
test_allowed_name_on_another_port_is_refused_by_the_kernel() {
	local b p
	net_up
	b=$(allowed a.test b.test:7000)
	printf 'tcp a.test %s\n' 22 25 81 444 7000 8080 8443 3128 65535 >tries
	printf 'tcp b.test %s\n' 80 443 >>tries
	all_say ECONNREFUSED "$b" <tries
	says open "$b" tcp b.test 7000
	says open "$b" tcp a.test 80
	want_nothing "^open $PUB:(22|25|81|444|7000|8080|8443)"
}

#@ root user range net
test_udp_quic_and_other_protocols_have_no_way_out() {
	local b a
	net_up
	b=$(allowed a.test)
	for a in $PUB $PUB6 a.test $PRIV $META 127.0.0.1 ::1; do
		printf 'udp %s 443 quic\nudp %s 7000 out\n' $a $a
	done >tries
	all_say ECONNREFUSED "$b" <tries
	poke "$b" sockets $PUB
	# Of TCP, no subflow; of packets, only those that the box's own loopback answers.
	not grep -Eq '^(sctp|sctp-seq|dccp|mptcp|packet|packet-dgram|vsock|tipc|rds|can|bluetooth|xdp|smc|kcm|ax25): went' <<<"$out" || fail "$out"
	want_nothing '^(udp|open)'
}

#@ root user net
test_ping_and_raw_packets_stay_in_the_box() {
	local b before after
	net_up
	b=$(allowed a.test)
	before=$(awk '/^Icmp: [0-9]/ { print $2 } /^Ip: [0-9]/ { print $4 }' /proc/net/snmp | tr '\n' ' ')
	poke "$b" sockets 192.175.48.99
	inside "$b" sh -c 'ping -c 1 -W 1 192.175.48.99; ping -6 -c 1 -W 1 2620:4f:8000::99; :'
	after=$(awk '/^Icmp: [0-9]/ { print $2 } /^Ip: [0-9]/ { print $4 }' /proc/net/snmp | tr '\n' ' ')
	is 'ICMP packets outside' "${after%% *}" "${before%% *}"
}

#@ root user net
test_listeners_of_the_gate_lead_nowhere_by_themselves() {
	local b p
	net_up
	b=$(allowed a.test)
	# Every port that something listens at in the box: the gate's own. Connected to directly, it is
	# whom it is for that is asked, and that is nobody.
	p=$(den exec "$b" -- awk 'FNR > 1 && $4 == "0A" { split($2, a, ":"); print a[2] }' /proc/net/tcp /proc/net/tcp6 | sort -u)
	[ -n "$p" ] || fail 'nothing listens'
	for p in $p; do
		p=$((16#$p))
		[ $p != 53 ] || continue
		poke "$b" http 127.0.0.1 $p 'GET / HTTP/1.1\r\nHost: b.test\r\n\r\n'
		case $out in ECONNREFUSED | ECONNRESET | end | EPIPE) ;; *) fail "port $p: $out" ;; esac
		poke "$b" http ::1 $p 'GET / HTTP/1.1\r\nHost: b.test\r\n\r\n'
		case $out in ECONNREFUSED | ECONNRESET | end | EPIPE) ;; *) fail "port $p: $out" ;; esac
	done
	want_nothing '^(open|http)'
}

#@ root user range net
test_root_in_the_box_cannot_open_a_way() {
	local b
	net_up
	b=$(allowed a.test)
	inside "$b" sh -c 'ip route add default dev lo; ip link add v type veth; ip link add d type dummy
		ip tuntap add t mode tun; nft flush ruleset; iptables -F; ip netns add x; ip addr add 10.0.0.1/8 dev lo
		for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/all/route_localnet; do echo 1 >$f; done; :'
	poke "$b" tcp $PUB2 80
	case $out in ECONNREFUSED | ENETUNREACH) ;; *) fail "$out" ;; esac
	poke "$b" tcp 127.0.0.1 80
	is loopback "$out" ECONNREFUSED
	inside "$b" /usr/bin/python3 -c '
import os
for pid in (1, os.getppid()):
    try:
        print(os.readlink("/proc/%d/ns/net" % pid) == os.readlink("/proc/self/ns/net"))
    except OSError:
        pass'
	not grep -q False <<<"$out" || fail "another network is in sight: $(told)"
	inside "$b" curl -sS http://b.test/
	want_rc 6
	want_nothing "^(open|http) $PUB2"
}

#@ root user range net
test_box_without_rules_has_nothing() {
	local b a
	net_up
	b=$(net_box)
	for a in $PUB $PUB6 $PRIV $META 127.0.0.1 198.18.0.1; do
		poke "$b" tcp $a 80
		case $out in ECONNREFUSED | ENETUNREACH) ;; *) fail "$a: $out" ;; esac
	done
	inside "$b" curl -sS -m 5 http://a.test/
	want_rc 6
	want_nothing .
	not gate_pid "$b" || fail 'a gate for nothing'
}

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
	local b other n
	net_up
	b=$(allowed '*.w.test')
	other=$(allowed a.test)
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
	at_most 'questions that came through' "$n" 6000
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
	inside "$b" curl -sS -m 3 http://priv.test/
	[ "$rc" != 0 ] || fail "$(told)"
	# of a.test's addresses only the other is left
	inside "$b" curl -sS -m 3 http://a.test/x
	want_out 'served a.test /x'
	want_came "^http $PUB6:80"
	want_nothing "^open ($PRIV|$PUB:)"
}

# ---- accidents -----------------------------------------------------------------------------------

# talk BOX PORT: a program in the box that keeps a connection and says a line whenever told to
talk() {
	mkfifo say
	"$DEN" exec "$1" -- /usr/bin/python3 -u -c '
import socket, sys
s = socket.create_connection(("a.test", '"$2"'))
print("up")
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        print(s.recv(1000).decode().strip() or "end")
    except OSError as e:
        print(type(e).__name__)' <say >heard 2>&1 &
	exec 8>say
	soon 5 grep -q up heard || fail "$(cat heard)"
}

heard() {
	tail -n 1 heard | grep -Eqx "$1"
}

#@ root user range net
test_killed_gate_ends_connections_and_another_takes_its_place() {
	local b p q
	net_up
	b=$(allowed a.test a.test:7000)
	p=$(gate_pid "$b")
	talk "$b" 7000
	kill -9 "$p"
	echo one >&8
	soon 3 heard '.*Error|end' || fail "$(cat heard)"
	exec 8>&-
	soon 5 "$DEN" exec "$b" -- curl -sS -m 2 -o /dev/null http://a.test/ || fail 'never up again'
	q=$(gate_pid "$b")
	[ "$p" != "$q" ] || fail 'the same gate'
	want_journal "$b" '"kind":"gate".*started again'
	inside "$b" curl -sS http://b.test/
	want_rc 6
}

#@ root user net
test_box_is_closed_while_its_gate_is_dead() {
	local b k
	net_up
	b=$(allowed a.test)
	k=$(field "$b" keeper_pid)
	inside "$b" curl -sS http://a.test/x
	want_rc 0
	mkfifo line
	"$DEN" exec "$b" -- /usr/bin/python3 -c '
import socket, sys, time
a = socket.gethostbyname("a.test")
print("go", flush=True)
sys.stdin.readline()
time.sleep(0.4)
r = []
for host in (a, "192.175.48.5", "10.9.8.7"):
    s = socket.socket()
    s.settimeout(2)
    r.append(s.connect_ex((host, 80)))
print(*r, flush=True)' <line >result &
	exec 8>line
	soon 5 grep -q go result
	: >"$KIT/log"
	echo x >&8
	sleep 0.1
	kill -STOP "$k"
	kill -9 "$(pgrep -x den-gate -P "$k")"
	sleep 0.8
	kill -CONT "$k"
	soon 5 grep -q '^111 111 111$' result || fail "$(cat result)"
	not grep -q ^open "$KIT/log" || fail "$(cat "$KIT/log")"
	exec 8>&-
}

#@ root user range net
test_killed_keeper_leaves_connections_open_and_the_next_one_adopts() {
	local b g
	net_up
	b=$(allowed a.test:7000 a.test)
	g=$(gate_pid "$b")
	"$DEN" exec --tag talker "$b" -- /usr/bin/python3 -u -c '
import os, socket, time
s = socket.create_connection(("a.test", 7000))
open("/root/up", "w")
while not os.path.exists("/root/go"): time.sleep(0.02)
s.sendall(b"after\n")
open("/root/heard", "wb").write(s.recv(100))' >/dev/null 2>&1 &
	soon 5 "$DEN" exec "$b" -- test -e /root/up
	kill -9 "$(field "$b" keeper_pid)"
	den exec "$b" -- touch /root/go
	soon 5 "$DEN" exec "$b" -- grep -q after /root/heard || fail 'the connection is gone'
	alive "$g" || fail 'the gate is gone'
	inside "$b" curl -sS http://a.test/x
	want_out 'served a.test /x'
	# it is the new keeper's now: policies reach it, and what it tells is written down
	den policy set "$b" --drop a.test >/dev/null
	inside "$b" curl -sS -m 3 http://a.test/x
	[ "$rc" != 0 ] || fail "$(told)"
	want_journal "$b" '"kind":"connection".*"port":7000' || :
	alive "$g" || fail 'the gate is gone'
	den rm --force "$b"
	soon 3 dead "$g" || fail 'the gate stayed behind'
}

#@ root user range net
test_stop_and_start_bring_the_same_way_out() {
	local b g
	net_up
	b=$(allowed a.test)
	g=$(gate_pid "$b")
	den stop "$b"
	soon 3 dead "$g" || fail 'the gate outlived the box'
	den start "$b"
	inside "$b" curl -sS http://a.test/x
	want_out 'served a.test /x'
	inside "$b" curl -sS http://b.test/
	want_rc 6
	is 'limits of the second' "$(gate_pid "$b" | wc -l)" 1
}

#@ root user net
test_fork_has_a_gate_of_its_own() {
	local b f g h
	net_up
	b=$(allowed a.test)
	inside "$b" curl -sS http://a.test/x
	want_rc 0
	f=$(den fork "$b" | tail -n 1)
	den start "$f" 2>/dev/null || :
	inside "$f" curl -sS http://a.test/fork
	want_out 'served a.test /fork'
	g=$(gate_pid "$b")
	h=$(gate_pid "$f")
	[ "$g" != "$h" ] || fail 'one gate for two'
	# what one is denied later, the other is not
	den policy set "$f" --drop a.test --allow b.test >/dev/null
	inside "$f" curl -sS -m 3 http://a.test/
	want_rc 6
	inside "$b" curl -sS http://a.test/y
	want_out 'served a.test /y'
	inside "$b" curl -sS -m 3 http://b.test/
	want_rc 6
	want_denial "$b" b.test
	not denied "$f" '"host":"b.test"' || fail 'told in the wrong box'
}

#@ root user range net
test_gate_has_no_privilege_and_no_files() {
	local b g
	net_up
	b=$(allowed a.test)
	g=$(gate_pid "$b")
	is seccomp "$(awk '/^Seccomp:/ { print $2 }' /proc/$g/status)" 2
	is 'new privileges' "$(awk '/^NoNewPrivs:/ { print $2 }' /proc/$g/status)" 1
	is capabilities "$(awk '/^Cap(Prm|Eff|Inh|Amb):/ { print $2 }' /proc/$g/status | sort -u)" 0000000000000000
	if [ "$VARIANT" = root ]; then
		is 'its files' "$(ls -A /proc/$g/root/)" ''
		[ "$(awk '/^Uid:/ { print $2 }' /proc/$g/status)" != 0 ] || fail 'the gate is root'
		is groups "$(awk '/^Groups:/ { print $2 }' /proc/$g/status)" ''
	fi
}
