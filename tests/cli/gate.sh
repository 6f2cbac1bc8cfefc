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
		timeout 5 openssl s_client -quiet -verify_return_error -CAfile /share/cert.pem -servername a.test \
			-connect a.test:443 2>/dev/null'
	want_out_has 'served a.test /openssl'
}

#@ root user net
test_names_are_found_by_programs_that_look_for_a_network_first() {
	local b
	net_up
	b=$(allowed a.test six.test)
	inside "$b" getent ahostsv4 a.test
	want_out_has '^198\.1[89]\.'
	inside "$b" getent ahostsv6 a.test
	want_out_has '^fdde:'
	inside "$b" node -e 'require("dns").lookup("a.test", { family: 4, hints: require("dns").ADDRCONFIG }, (e, a) => console.log(e ? e.code : a))'
	want_out_has '^198\.'
	inside "$b" /usr/bin/python3 -c '
import socket
for f in (socket.AF_INET, socket.AF_INET6, 0):
    print(len(socket.getaddrinfo("a.test", 80, f, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)))'
	want_out "$(printf '1\n1\n2')"
}

#@ root user net
test_any_protocol_works_on_an_allowed_name_and_port() {
	local b
	net_up
	b=$(allowed a.test:7000 a.test:25)
	poke "$b" tcp a.test 7000 $'hello\n'
	want_out hello
	inside "$b" sh -c 'printf "\0\0\0\10\4\322\26\57" | nc -N a.test 7000 | od -An -tx1'
	want_out ' 00 00 00 08 04 d2 16 2f'
	# the server speaks first
	inside "$b" /usr/bin/python3 -c '
import socket
s = socket.create_connection(("a.test", 25))
print(s.recv(100).decode().strip())
s.sendall(b"EHLO x\r\n")
print(s.recv(100).decode().strip())'
	want_out "$(printf '220 first word\nEHLO x')"
	inside "$b" sh -c 'echo from-nc | nc -N a.test 7000'
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
	local b
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
		case $out in ECONNREFUSED | ENETUNREACH | EHOSTUNREACH) ;; *) fail "$a: $out" ;; esac
	done
	inside "$b" curl -sS -m 5 http://a.test/
	want_rc 6
	want_nothing .
	not gate_pid "$b" || fail 'a gate for nothing'
}
