# The proxy for programs that insist on one: no other rules hold there.
source "$TESTS/gate/kit.sh"

#@ root user range net
test_proxy_is_there_for_programs_that_insist() {
	local b
	net_up
	b=$(net_box --allow a.test --allow a.test:7000 --proxy-env)
	inside "$b" sh -c 'echo $http_proxy $HTTPS_PROXY'
	want_out 'http://198.18.0.1:3128 http://198.18.0.1:3128'
	inside "$b" curl -sS -v http://a.test/plain
	want_out 'served a.test /plain'
	want_err_has '198.18.0.1.*3128'
	inside "$b" curl -sS --cacert /share/cert.pem https://a.test/tunnel
	want_out 'served a.test /tunnel'
	poke "$b" http 198.18.0.1 3128 'CONNECT a.test:7000 HTTP/1.1\r\nHost: a.test:7000\r\n\r\n' 'hi\n'
	want_out_has '^HTTP/1.1 200'
	want_out_has '^hi'
	want_came "^http $PUB:80 GET /plain a.test"
	# without asking, none
	b=$(allowed a.test)
	says ECONNREFUSED "$b" tcp 198.18.0.1 3128
}

#@ root user range net
test_proxy_refuses_with_a_403_that_teaches() {
	local b t
	net_up
	b=$(net_box --name lesson --allow a.test --proxy-env)
	inside "$b" curl -sS -i http://evil.test/
	want_out_has '^HTTP/1.1 403'
	want_out_has '^rule: none matches'
	want_out_has '^policy generation: 1'
	want_out_has '^how to ask: .*den policy set lesson'
	inside "$b" curl -sS https://evil.test/
	want_rc 56
	want_err_has '403'
	for t in evil.test:443 a.test:22 a.test:7000 127.0.0.1:80 192.175.48.5:443 '[::1]:80' 169.254.169.254:80 0x7f.1:80 2130706433:80 host.den:80 \
		a.test@evil.test:443; do
		poke "$b" http 198.18.0.1 3128 "CONNECT $t HTTP/1.1\r\nHost: $t\r\n\r\n"
		want_out_has '^HTTP/1.1 40[03]'
	done
	# whom the head names is one thing, what goes through is another: both are looked at
	for t in 'CONNECT a.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n' 'GET http://a.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n' \
		'GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n' 'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n' \
		'CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n' \
		'GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n'; do
		poke "$b" http 198.18.0.1 3128 "$t"
		want_out_has 'HTTP/1.1 40[03]'
	done
	want_nothing evil
	want_nothing '^open .*:(22|7000)$'
	want_denial "$b" '"host":"evil.test"'
}

#@ root user net
test_proxy_tunnel_for_another_name_is_refused() {
	local b
	net_up
	b=$(net_box --allow a.test --proxy-env)
	inside "$b" sh -c 'openssl s_client -proxy 198.18.0.1:3128 -connect a.test:443 -servername b.test </dev/null 2>&1'
	want_out_has 'unrecognized name'
	inside "$b" sh -c 'openssl s_client -proxy 198.18.0.1:3128 -connect a.test:443 -servername a.test </dev/null 2>&1'
	want_out_has 'CONNECTED'
	want_nothing 'tls .*b.test'
	want_came 'tls .* a.test'
}
