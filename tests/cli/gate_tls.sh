# What goes over an allowed connection must be for the allowed name: TLS by its ClientHello, HTTP by every
# request's Host. What is not, is refused before a byte of it reaches the server.
source "$TESTS/gate/kit.sh"

# evil_free: no server has understood, or been sent, a word of what was meant for another name
evil_free() {
	want_nothing '(evil|b\.test)'
}

# ---- TLS -----------------------------------------------------------------------------------------

#@ root user range net
test_tls_for_another_name_is_refused() {
	local b
	net_up
	b=$(allowed a.test)
	says 'server 22' "$b" hello a.test 443 sni=a.test
	says 'server 22' "$b" hello a.test 443 sni=A.Test
	: >"$KIT/log"
	says 'alert 112' "$b" hello a.test 443 sni=b.test
	says 'alert 112' "$b" hello a.test 443 sni=x.a.test
	says 'alert 112' "$b" hello a.test 443 sni=192.175.48.5
	inside "$b" curl -sS -m 5 --cacert /share/cert.pem --connect-to b.test:443:a.test:443 https://b.test/
	want_rc 35
	inside "$b" sh -c 'openssl s_client -connect a.test:443 -servername b.test </dev/null 2>&1'
	want_out_has 'unrecognized name'
	want_denial "$b" '"host":"a.test",.*"port":443,"reason":"TLS for another name"'
	want_nothing '^(tls|data|http)'
}

#@ root user range net
test_tls_without_a_name_or_with_a_hidden_one_is_refused() {
	local b
	net_up
	b=$(allowed a.test)
	says 'alert 112' "$b" hello a.test 443
	says 'alert 112' "$b" hello a.test 443 sni=a.test ech
	says 'alert 112' "$b" hello a.test 443 ech sni=a.test split=7
	inside "$b" sh -c 'openssl s_client -connect a.test:443 -noservername </dev/null 2>&1'
	want_out_has 'unrecognized name'
	want_denial "$b" 'TLS without a server name'
	want_denial "$b" 'encrypted ClientHello hides the name'
	# and what is not one that can be understood
	poke "$b" hello a.test 443 sni=a.test sni=b.test
	want_out_has '^(alert|end|ECONNRESET)'
	poke "$b" hello a.test 443 sni=a.test half
	want_out_has '^(alert|end|ECONNRESET)'
	want_nothing '^(tls|data)'
}

#@ root user net
test_client_hello_in_pieces_or_very_long_is_understood() {
	local b
	net_up
	b=$(allowed a.test)
	all_say 'server 22' "$b" <<-EOF
		hello a.test 443 sni=a.test split=1
		hello a.test 443 sni=a.test split=100
		hello a.test 443 sni=a.test records=20
		hello a.test 443 sni=a.test records=1 split=40
		hello a.test 443 pad=15000 sni=a.test
		hello a.test 443 pad=15000 sni=a.test split=1460
	EOF
	: >"$KIT/log"
	all_say 'alert 112' "$b" <<-EOF
		hello a.test 443 sni=b.test split=1
		hello a.test 443 sni=b.test split=100
		hello a.test 443 sni=b.test records=20
		hello a.test 443 sni=b.test records=1 split=40
		hello a.test 443 pad=15000 sni=b.test
		hello a.test 443 pad=15000 sni=b.test split=1460
		hello a.test 443 pad=15000 split=5000
		hello a.test 443 pad=15000 sni=a.test ech
	EOF
	# nobody needs one of this size: refused, not waited for without end
	poke "$b" hello a.test 443 pad=65000 sni=a.test records=16000
	[ "$out" = 'server 22' ] || want_out_has '^(alert|end|ECONNRESET)'
	want_nothing '^(tls|data) .*b.test'
}

#@ root user net
test_tls_port_is_for_tls_and_http_port_for_http() {
	local b
	net_up
	b=$(allowed a.test)
	poke "$b" http a.test 443 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'
	want_out_has '^HTTP/1.1 403'
	want_out_has 'port 443 must speak TLS'
	all_say 'ECONNRESET|end|EPIPE' "$b" <<-EOF
		http a.test 443 \x00\x01binary
		http a.test 443 SSH-2.0-x\r\n
		http a.test 80 \x00\x01binary
		http a.test 80 SSH-2.0-x\r\n
	EOF
	# SSLv2's hello, a record of another type, a handshake that is not a ClientHello, TLS below a CRLF
	all_say '(ECONNRESET|end|EPIPE|.*end|.*ECONNRESET)' "$b" <<-EOF
		http a.test 443 \x80\x2e\x01\x00\x02
		http a.test 443 \x17\x03\x03\x00\x05hello
		http a.test 443 \x16\x03\x01\x00\x05\x02\x00\x00\x01\x00
		http a.test 443 \r\n\x16\x03\x01
	EOF
	want_nothing '^data'
}

#@ root user range net
test_raw_rule_lets_any_bytes_through_for_that_port_alone() {
	local b
	net_up
	b=$(allowed a.test:443:raw a.test:80)
	says 'server 22' "$b" hello a.test 443
	says 'server 22' "$b" hello a.test 443 sni=other.test
	says 'server 22' "$b" hello a.test 443 sni=a.test ech
	poke "$b" http a.test 80 'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	want_out_has '^HTTP/1.1 403'
	says ECONNREFUSED "$b" tcp a.test 7000
	want_journal "$b" '"kind":"connection".*"port":443.*"rule":"a.test:443:raw"'
}

#@ root user range net
test_wildcard_means_what_is_below_and_names_stay_apart() {
	local b
	net_up
	b=$(allowed '*.w.test')
	inside "$b" curl -sS --cacert /share/cert.pem https://x.w.test/
	want_out 'served x.w.test /'
	inside "$b" curl -sS http://z.y.x.w.test/
	want_out 'served z.y.x.w.test /'
	inside "$b" curl -sS http://w.test/
	want_rc 6
	inside "$b" curl -sS http://xw.test/
	want_rc 6
	# both are allowed, and yet a connection for one is not for the other
	says 'alert 112' "$b" hello x.w.test 443 sni=y.w.test
	poke "$b" http x.w.test 80 'GET / HTTP/1.1\r\nHost: y.w.test\r\n\r\n'
	want_out_has '^HTTP/1.1 403'
	want_nothing 'y\.w\.test$'
}

#@ root user net
test_tls_on_other_ports_is_for_the_name_too() {
	local b
	net_up
	b=$(allowed a.test:8443 a.test:7000)
	inside "$b" curl -sS --cacert /share/cert.pem https://a.test:8443/x
	want_out 'served a.test:8443 /x'
	says 'alert 112' "$b" hello a.test 8443 sni=b.test
	says 'alert 112' "$b" hello a.test 7000 sni=b.test
	says 'alert 112' "$b" hello a.test 7000
	evil_free
}

# ---- HTTP ----------------------------------------------------------------------------------------

#@ root user range net
test_http_for_another_host_gets_a_403_that_teaches() {
	local b
	net_up
	b=$(net_box --name lesson --allow a.test)
	inside "$b" curl -sS -i -H 'Host: evil.test' http://a.test/
	want_rc 0
	want_out_has '^HTTP/1.1 403 '
	want_out_has '^rule: '
	want_out_has '^policy generation: 1'
	want_out_has '^how to ask: .*den policy set lesson'
	inside "$b" curl -sS -i --connect-to b.test:80:a.test:80 http://b.test/x
	want_out_has '^HTTP/1.1 403 '
	evil_free
	want_denial "$b" '"host":"a.test",.*"port":80'
	want_journal "$b" '"kind":"denial".*"host":"a.test".*"generation":1'
}

#@ root user range net
test_every_request_of_a_connection_must_be_for_the_name() {
	local b
	net_up
	b=$(allowed a.test)
	# at once, and one after the other
	poke "$b" http a.test 80 'GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	want_out_has 'served a.test /1'
	want_out_has 'HTTP/1.1 403'
	poke "$b" http a.test 80 'GET /3 HTTP/1.1\r\nHost: a.test\r\n\r\n' 'GET /4 HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	want_out_has 'served a.test /3'
	want_out_has 'HTTP/1.1 403'
	poke "$b" http a.test 80 'POST /5 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcGET /6 HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	want_out_has 'served a.test /5 body 3'
	poke "$b" http a.test 80 'POST /7 HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /8 HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	want_out_has 'served a.test /7 body 3'
	evil_free
	want_nothing '/[2468]'
	# what is right goes on: many on one connection
	inside "$b" curl -sS http://a.test/a http://a.test/b http://a.test/c
	want_out "$(printf 'served a.test /%s\n' a b c)"
}

#@ root user range net
test_request_smuggling_is_refused() {
	local b t n=0
	net_up
	b=$(allowed a.test)
	local E='GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	while read -r t; do
		[ -n "$t" ] || continue
		n=$((n + 1))
		printf '%s\n' "$t"
	done >requests <<-EOF
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0, 60\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length:\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -1\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999999999999999\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$E
		POST / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n$E
		GET / HTTP/1.1\nHost: a.test\n\n$E
		GET / HTTP/1.1\r\nHost: a.test\nHost: evil.test\r\n\r\n
		GET / HTTP/1.1\r\nHost: a.test\rHost: evil.test\r\n\r\n
		GET / HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n
		GET / HTTP/1.1\r\nHost: evil.test\r\nHost: a.test\r\n\r\n
		GET / HTTP/1.1\r\nHost: a.test, evil.test\r\n\r\n
		GET / HTTP/1.1\r\nHost: a.test@evil.test\r\n\r\n
		GET / HTTP/1.1\r\nHost: evil.test\x00.a.test\r\n\r\n
		GET / HTTP/1.1\r\nHost : evil.test\r\n\r\n
		GET / HTTP/1.1\r\n Host: a.test\r\nHost: evil.test\r\n\r\n
		GET / HTTP/1.1\r\nX: evil.test\r\n\r\n
		GET / HTTP/1.0\r\nX-Evil: evil.test\r\n\r\n
		GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n
		GET http://a.test@evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n
		GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n
		GET //evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n
		CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n
		CONNECT evil.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n
		CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\nX: evil\r\n\r\n
		PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nevil
		GET /evil\r\n
		\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n
		get / http/1.1\r\nhost: evil.test\r\n\r\n
		GET\t/\tHTTP/1.1\r\nHost: evil.test\r\n\r\n
		GET / HTTP/1.1 evil\r\nHost: a.test\r\n\r\n
		G\x00T / HTTP/1.1\r\nHost: evil.test\r\n\r\n
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nevil\r\n0\r\n\r\n
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nevil\r\n0\r\n\r\n
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nevil
		POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n1\nevil\r\n0\r\n\r\n
	EOF
	at_least requests $n 40
	inside "$b" /usr/bin/python3 -c '
import socket, sys
bad = 0
for line in sys.stdin:
    text = line.rstrip("\n").encode().decode("unicode_escape").encode("latin-1")
    s = socket.create_connection(("a.test", 80))
    s.settimeout(2)
    data = b""
    try:
        s.sendall(text)
        while True:
            more = s.recv(65536)
            if not more: break
            data += more
    except (socket.timeout, TimeoutError): data += b"(waits)"
    except OSError: pass
    s.close()
    # Refused at the first request, or before it: at most what was right before the trick was served.
    if b" 200 " in data.split(b"\r\n")[0] or b"(waits)" in data:
        bad += 1
        print("%s -> %s" % (line.strip(), data))
sys.exit(bad > 0)' <requests
	want_rc 0
	evil_free
	# so that a log without it proves something
	den policy set "$b" --allow a.test:80:raw >/dev/null
	poke "$b" http a.test 80 'GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n'
	want_came '^http .* /evil evil.test'
}

#@ root user net
test_http_on_other_ports_is_for_the_name_too() {
	local b
	net_up
	b=$(allowed a.test:8080 a.test:7000)
	inside "$b" curl -sS http://a.test:8080/x
	want_out 'served a.test:8080 /x'
	local t
	for t in 'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n' '\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n' \
		'get / http/1.1\r\nHost: evil.test\r\n\r\n' 'FOO / HTTP/1.1\r\nHost: evil.test\r\n\r\n' \
		'GET /evil\r\n' 'CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test:80\r\n\r\n'; do
		poke "$b" http a.test 8080 "$t"
		not grep -q served <<<"$out" || fail "$t: $out"
	done
	# the same, a letter at a time
	inside "$b" /usr/bin/python3 -c '
import socket, time
s = socket.create_connection(("a.test", 8080))
s.setsockopt(6, 1, 1)
try:
    for c in b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n": s.send(bytes([c])); time.sleep(0.003)
    print(s.recv(1000).decode().split("\r\n")[0])
except OSError as e: print(type(e).__name__)'
	want_out_has '403|Error'
	evil_free
}

#@ root user net
test_http_in_pieces_and_with_bodies_of_all_kinds_passes() {
	local b
	net_up
	b=$(allowed a.test)
	inside "$b" /usr/bin/python3 -c '
import socket, time
s = socket.create_connection(("a.test", 80))
s.setsockopt(6, 1, 1)
for c in b"POST /slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello": s.send(bytes([c])); time.sleep(0.002)
print(s.recv(1000).decode().split("\r\n")[-1].strip())'
	want_out 'served a.test /slow body 5'
	den exec "$b" -- sh -c 'head -c 1000000 /dev/zero >/root/big'
	inside "$b" curl -sS --data-binary @/root/big http://a.test/up
	want_out 'served a.test /up body 1000000'
	inside "$b" curl -sS -H 'Transfer-Encoding: chunked' --data-binary @/root/big http://a.test/up
	want_out 'served a.test /up body 1000000'
	inside "$b" curl -sS --cacert /share/cert.pem --data-binary @/root/big https://a.test/up
	want_out 'served a.test /up body 1000000'
	inside "$b" sh -c 'curl -sS http://a.test/bytes/3000000 | wc -c; curl -sS --cacert /share/cert.pem https://a.test/bytes/3000000 | wc -c'
	want_out "$(printf '3000000\n3000000')"
	inside "$b" curl -sS -I http://a.test/
	want_out_has '^HTTP/1.1 200'
	# a target in absolute form, and a Host with the port said, are for the name as well
	poke "$b" http a.test 80 'GET http://a.test/abs HTTP/1.1\r\nHost: a.test:80\r\nConnection: close\r\n\r\n'
	want_out_has '^HTTP/1.1 200'
}

#@ root user net
test_upgrade_passes_once_the_server_agreed() {
	local b
	net_up
	b=$(allowed a.test)
	poke "$b" http a.test 80 'GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n' 'frames'
	want_out_has '^HTTP/1.1 101'
	want_out_has 'echo frames'
	: >"$KIT/log"
	poke "$b" http a.test 80 'GET /ws HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n' 'frames'
	want_out_has '^HTTP/1.1 403'
	poke "$b" http a.test 80 'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\nevil'
	evil_free
}

#@ root user net
test_server_that_is_not_there_is_told_so() {
	local b
	net_up
	b=$(allowed dead.test a.test:81 b.test:82)
	for _ in 1 2 3 4 5; do
		inside "$b" curl -sS -i -m 15 http://dead.test/
		want_out_has '^HTTP/1.1 502'
	done
	# another port may be one where the server speaks first: there it is as if nobody listened
	inside "$b" curl -sS -i -m 15 http://a.test:81/
	[ "$rc" != 0 ] || want_out_has '^HTTP/1.1 502'
	inside "$b" curl -sS -m 15 https://dead.test/
	[ "$rc" != 0 ] || fail "$(told)"
	# the same through the proxy
	b=$(net_box --allow dead.test --allow a.test:81 --allow b.test:82 --proxy-env)
	inside "$b" curl -sS -i -m 15 http://a.test:81/
	want_out_has '^HTTP/1.1 502'
	inside "$b" curl -sS -i -m 15 http://dead.test/
	want_out_has '^HTTP/1.1 502'
	poke "$b" tcp b.test 82 $'\x01binary\n'
	want_out_has '^(ECONNRESET|EPIPE|end)$'
}
