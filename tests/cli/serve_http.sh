# The HTTP engine of den serve: what clients do wrong, slowly, or at the worst moment. The checks are in
# serve/raw.py, against a server with nothing behind it (serve/engine_test.c); the last ones against den serve.
source "$TESTS/serve/kit.sh"

raw() {
	[ -x "$PROGRAMS/serve-engine" ] || skip 'den-serve is not built: libmicrohttpd-dev, libwslay-dev'
	try /usr/bin/python3 "$TESTS/serve/raw.py" "$PROGRAMS/serve-engine" "$@"
	want_rc 0
}

#@ root
test_a_connection_takes_many_requests() { raw keep_alive expect_continue early_answers; }

#@ root
test_bodies_come_and_go_in_chunks() { raw chunked; }

#@ root
test_requests_that_two_could_read_differently_are_refused() { raw smuggling; }

#@ root
test_addresses_are_decoded_once() { raw paths; }

#@ root
test_keys_and_scopes_are_asked_before_the_handler() { raw keys; }

#@ root
test_browsers_are_told_what_they_may() { raw cors; }

#@ root
test_huge_heads_are_refused_in_bounded_memory() { raw huge_heads; }

#@ root
test_json_deep_large_broken_is_refused() { raw jsons; }

#@ root waits
test_clients_that_trickle_their_headers_are_cut() { raw slow_clients; }

#@ root timeout=120 waits
test_clients_that_trickle_their_body_are_cut() { raw slow_body; }

#@ root
test_who_hangs_up_is_noticed() { raw hang_ups; }

#@ root
test_who_sends_no_more_is_answered_and_let_go() { raw half_closed; }

#@ root
test_a_broken_answer_never_looks_whole() { raw broken_streams; }

#@ root
test_each_write_is_on_the_wire_at_once() { raw at_once; }

#@ root
test_streams_end_with_their_box() { raw kicks; }

#@ root
test_stopping_lets_short_requests_end() { raw stops; }

#@ root
test_more_requests_than_workers_are_told_so() { raw too_many; }

#@ root timeout=180
test_a_gibibyte_each_way_takes_no_memory() { raw back_pressure; }

#@ root
test_a_thousand_idle_streams_cost_little() { raw idle_streams; }

#@ root
test_websockets_keep_the_rules() { raw websockets; }

#@ root
test_upgraded_connections_carry_anything() { raw upgrades; }

#@ root
test_tls() { raw tls; }

#@ root
test_unix_socket() { raw unix_socket; }

#@ root
test_probes_and_metrics() { raw probes; }

#@ root waits
test_the_server_itself_refuses_what_is_ambiguous() {
	serve_start
	local port=$PORT
	# send TEXT: what comes back until the server closes
	send() {
		printf "$1" | timeout 10 nc -N 127.0.0.1 "$port" | tr -d '\0' || true
	}
	is 'a plain request' "$(send 'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' | head -n 1 | tr -d '\r')" 'HTTP/1.1 200 OK'
	local bad
	for bad in 'GET /healthz HTTP/1.1\nHost: x\n\n' 'GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n' \
		'GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n' 'GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n' \
		'POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' \
		'GET /v1/boxes/%%00 HTTP/1.1\r\nHost: x\r\n\r\n' 'GET /v1/boxes/%%zz HTTP/1.1\r\nHost: x\r\n\r\n'; do
		out=$(send "$bad")
		grep -q '^HTTP/1.1 400' <<<"$out" || fail "'$bad' gives '${out:0:300}'"
	done
	api GET /healthz
	want_code 200
}

#@ root
test_the_server_itself_refuses_hostile_bodies() {
	serve_start
	local n
	python3 - >"$TMP/deep" <<<'print("{\"a\":" * 100000)'
	python3 - >"$TMP/many" <<<'print("{\"env\":[" + "1," * 500000 + "1]}")'
	printf '{"name":"\xff"}' >"$TMP/utf8"
	printf '{"name":"a","name":"b"}' >"$TMP/twice"
	for n in deep many utf8 twice; do
		api POST /v1/boxes --data-binary "@$TMP/$n" -H 'Content-Type: application/json'
		[ "$code" = 400 ] || [ "$code" = 413 ] || fail "$n gives $code: $out"
		j 'v["error"]["message"]' >/dev/null
	done
	api GET /healthz
	want_code 200
}

#@ root
test_the_server_itself_tells_its_memory() {
	serve_start
	api GET /metrics
	want_code 200
	at_least 'memory' "$(sed -n 's/^process_max_resident_memory_bytes //p' <<<"$out")" 1000000
	want_out_has '^den_workers '
}
