# Ports of boxes through den serve: found by name or header, strict both ways, streamed, upgraded, and for whom.
source "$TESTS/serve/kit.sh"

# box_server [LABEL...]: a server with a box in which something listens on 8000; $id, $host
box_server() {
	local l labels=()
	for l in "$@"; do
		labels+=(--label "$l")
	done
	serve_start
	id=$(den create "${labels[@]}")
	# known to the server, however long its list took
	api GET "/v1/boxes/$id"
	want_code 200
	host=8000-$id.localhost:$PORT
	den fs write "$id" /tmp/server.py <"$TESTS/serve/port_server.py"
	den exec --detach "$id" /usr/bin/python3 /tmp/server.py 8000
	soon 10 den exec "$id" sh -c 'grep -q ":1F40 .* 0A " /proc/net/tcp' || fail 'the program in the box does not listen'
}

port() {
	local path=$1
	shift
	KEY=none api GET "$path" -H 'Authorization:' -H "Host: $host" "$@"
}

#@ root user
test_port_is_reached_by_host_name_and_by_header_in_both_spellings() {
	local i
	box_server den.traffic=public
	port '/a/b?x=1&y=%20'
	want_code 200
	is path "$(j 'v["path"]')" '/a/b?x=1&y=%20'
	is 'host in the box' "$(j 'dict(v["headers"])["Host"]')" "$host"
	is proto "$(j 'dict(v["headers"])["X-Forwarded-Proto"]')" http
	is peer "$(j 'dict(v["headers"])["X-Forwarded-For"]')" 127.0.0.1
	grep -qi '^x-mine: 1' "$TMP/.head" || fail 'a header of the answer is lost'
	i=i${id#b-}
	host=8000-$i.anything.example
	port /
	want_code 200
	host=127.0.0.1:$PORT
	port / -H "E2b-Sandbox-Id: $i" -H 'E2b-Sandbox-Port: 8000'
	want_code 200
	port / -H "E2b-Sandbox-Id: $id" -H 'E2b-Sandbox-Port: 8000'
	want_code 200
}

#@ root user
test_methods_bodies_and_their_framing_pass() {
	local m
	box_server den.traffic=public
	for m in POST PUT DELETE PATCH OPTIONS PROPFIND; do
		KEY=none api "$m" /x -H "Host: $host" --data-binary hello
		want_code 200
		is method "$(j 'v["method"]')" "$m"
		is body "$(j 'v["body"]')" hello
	done
	KEY=none api POST /x -H "Host: $host" -H 'Transfer-Encoding: chunked' --data-binary hello
	is 'chunked body' "$(j 'v["body"]')" hello
	port /empty
	want_code 204
	port /close
	is 'until the end' "$out" 'until the end'
	code=$(curl -sS -I -H "Host: $host" -o "$TMP/.head" -w '%{http_code}' "$URL/x")
	is HEAD "$code" 200
	head -c 50000000 /dev/zero >"$TMP/big"
	KEY=none api POST /size -H "Host: $host" -H 'Expect:' --data-binary "@$TMP/big"
	is 'size of a large body' "$out" 50000000
	out=$(curl -sS -H "Host: $host" "$URL/big" | wc -c)
	is 'size of a large answer' "$out" $((64 << 20))
	KEY=none api POST /early -H "Host: $host" -H 'Expect:' --data-binary "@$TMP/big"
	want_code 413
}

#@ root user
test_hop_by_hop_headers_and_secrets_of_the_server_stay_outside() {
	box_server den.traffic=public
	port / -H 'Connection: close, X-Hop' -H 'Proxy-Authorization: x' -H 'TE: trailers' -H 'X-Forwarded-For: 6.6.6.6' \
		-H "X-API-Key: $KEY" -H 'Cookie: a=1; den_session=ses_x; __Host-den_session=ses_x; den-token=y; b=2'
	want_code 200
	is cookies "$(j 'dict(v["headers"])["Cookie"]')" 'a=1; b=2'
	is 'forwarded for' "$(j '[x[1] for x in v["headers"] if x[0].lower() == "x-forwarded-for"]')" '["127.0.0.1"]'
	is 'what must not pass' "$(j '[x[0] for x in v["headers"] if x[0].lower() in ("proxy-authorization", "te", "x-api-key")]')" '[]'
	port /cookies
	is cookies "$(grep -i '^set-cookie' "$TMP/.head" | tr -d '\r' | sed 's/^[^:]*: *//; s/ *; */;/g' | sort | tr '\n' '|')" 'a=1;Path=/|b=2|'
}

#@ root user
test_answers_that_could_be_understood_in_two_ways_are_not_passed() {
	box_server den.traffic=public
	for p in two-lengths both bare-lf garbage; do
		port "/$p"
		want_code 502
	done
	port /second
	is 'first answer' "$out" hi
	code=$(curl -sS -o /dev/null -w '%{http_code}' -H "Host: $host" "$URL/cut" 2>"$TMP/err") || rc=$?
	at_least "status of curl when the answer was cut" "${rc:-0}" 18
	# nothing of it disturbs the next one
	port /
	want_code 200
}

#@ root user
test_events_come_when_they_happen_and_a_gone_client_is_told_to_the_box() {
	local before
	box_server den.traffic=public
	before=$(now_ms)
	curl -sS -N -H "Host: $host" "$URL/sse" >"$TMP/sse" &
	soon 5 grep -q 'data: 2' "$TMP/sse" || fail "events are held back: $(cat "$TMP/sse")"
	at_most 'time of the third event' $(($(now_ms) - before)) 4000
	kill $!
	soon 10 den exec "$id" test -e /tmp/sse-ended || fail 'the program in the box was not told'
}

#@ root user
test_upgrade_passes_bytes_both_ways() {
	box_server den.traffic=public
	out=$(/usr/bin/python3 - "$PORT" "$host" <<'END'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.settimeout(10)
s.sendall(b"GET /up HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n" % sys.argv[2].encode())
got = b""
while b"\r\n\r\nhello" not in got:
    piece = s.recv(4096)
    assert piece, got
    got += piece
head = got.split(b"\r\n\r\n")[0].lower()
assert head.startswith(b"http/1.1 101"), head
assert b"upgrade: shout" in head and b"x-said: yes" in head, head
for data in b"abc", b"x" * 300000:
    want = data.upper()
    import threading
    threading.Thread(target=s.sendall, args=(data,)).start()
    got = b""
    while len(got) < len(want):
        piece = s.recv(65536)
        assert piece, len(got)
        got += piece
    assert got == want
s.shutdown(socket.SHUT_WR)
assert s.recv(10) == b""
print("fine")
END
)
	is upgrade "$out" fine
}

#@ root user
test_port_needs_the_token_of_its_box_unless_public() {
	local token other jar=$TMP/jar
	box_server
	port /
	want_code 403
	is code "$(j 'v["code"]')" 403
	# the server's own secret makes it; the API tells it
	api GET "/v1/boxes/$id/ports"
	want_code 200
	token=$(traffic_token "$id")
	port / -H "e2b-traffic-access-token: $token"
	want_code 200
	is 'token in the box' "$(j '[x for x in v["headers"] if "token" in x[0].lower()]')" '[]'
	# a token of another box, and one for another purpose
	api_json POST /v1/boxes '{}'
	other=$(j 'v["id"]')
	port / -H "e2b-traffic-access-token: $(traffic_token "$other")"
	want_code 403
	port / -H "e2b-traffic-access-token: $(hmac_token envd "$id")"
	want_code 403
	# a link becomes a cookie
	port "/deep?den-token=$token&x=1" -c "$jar"
	want_code 302
	grep -qi "^location: /deep?x=1" "$TMP/.head" || fail "$(cat "$TMP/.head")"
	grep -qi '^set-cookie: den-token=.*httponly' "$TMP/.head" || fail 'no cookie'
	port /deep -H "Cookie: den-token=$token"
	want_code 200
	# made public, and back
	api_json PUT "/v1/boxes/$id/ports/8000" '{"public":true}'
	port /
	want_code 200
	api DELETE "/v1/boxes/$id/ports/8000"
	port /
	want_code 403
}

# HMAC-SHA256 of "WHAT/BOX" with the server's secret, 20 bytes of it: what auth_box_token() does
hmac_token() {
	/usr/bin/python3 -c 'import hmac,sys
print(hmac.new(open(sys.argv[1],"rb").read(), ("%s/%s" % tuple(sys.argv[2:4])).encode(), "sha256").hexdigest()[:40])' \
		"$DEN_STATE/serve/secret" "$1" "$2"
}

traffic_token() {
	hmac_token traffic "$1"
}

#@ root user
test_closed_port_and_missing_box_are_told_as_e2b_tells_them() {
	box_server den.traffic=public
	host=9999-$id.localhost
	port /
	want_code 502
	is message "$(j 'v["message"]')" 'The sandbox is running but port is not open'
	is port "$(j 'v["port"]')" 9999
	host=8000-iaaaaaaaaaaaaaaaaaa.localhost
	port / -H "E2b-Sandbox-Id: iaaaaaaaaaaaaaaaaaa"
	want_code 502 # who asks by E2B's headers is told in E2B's words
	is message "$(j 'v["message"]')" 'The sandbox was not found'
	den stop "$id"
	host=127.0.0.1:$PORT
	soon 5 gone_is_told || fail "status $code: $out"
}

gone_is_told() {
	port / -H "E2b-Sandbox-Id: $id" -H 'E2b-Sandbox-Port: 8000'
	[ "$code" = 502 ] && [ "$(j 'v["message"]')" = 'The sandbox was not found' ]
}

#@ root user
test_host_of_no_box_is_not_the_server() {
	local h
	box_server den.traffic=public
	for h in "8000-nobody.localhost:$PORT" "nobody.localhost:$PORT" 8000-iaaaaaaaaaaaaaaaaaa.localhost 99999-$id.localhost; do
		for p in / /v1/boxes /healthz /ui/; do
			KEY=none api GET "$p" -H "Host: $h"
			want_code 404
			has "$(j 'v["message"]')" 'here is no'
		done
	done
	# a person gets words
	KEY=none api GET / -H 'Host: 8000-iaaaaaaaaaaaaaaaaaa.localhost' -H 'Accept: text/html,*/*'
	want_code 404
	is text "$out" '404: There is no box b-aaaaaaaaaaaaaaaaaa: it was deleted, or there never was one'
	host=9999-$id.localhost
	port / -H 'Accept: text/html,*/*'
	want_code 502
	is text "$out" '502: The sandbox is running but port is not open (port 9999)'
	# what this server is called itself
	for h in "localhost:$PORT" "api.localhost:$PORT" "sandbox.localhost" 10-0-0-1.example; do
		KEY=none api GET / -H "Host: $h"
		want_code 200
	done
	den stop "$id"
	host=8000-$id.localhost
	soon 5 stopped_is_told || fail "status $code: $out"
	api DELETE "/v1/boxes/$id"
	want_code 204
	port /
	want_code 404
}

stopped_is_told() {
	port /
	[ "$code" = 502 ] && [ "$(j 'v["message"]')" = "The box is stopped, so nothing listens on its port 8000: POST /v1/boxes/$id/start lets it run" ]
}
