# Who may what: every route of every table, quotas, sessions of the page.
source "$TESTS/serve/kit.sh"

#@ root user timeout=240 waits
test_every_route_refuses_who_may_not() {
	serve_start
	try /usr/bin/python3 "$TESTS/serve/auth.py" "$DEN" "$URL" "$KEY" "$DEN_STATE"
	want_rc 0
}

#@ root user
test_box_of_the_command_line_is_seen_by_admins_alone() {
	local id
	serve_start
	id=$(den create --name mine)
	api GET "/v1/boxes/$id"
	want_code 200
	KEY=$(new_key)
	api GET "/v1/boxes/$id"
	want_code 404
	api GET /v1/boxes/mine
	want_code 404
	api GET /v1/boxes
	is boxes "$(j 'v["boxes"]')" '[]'
}

#@ root user timeout=120
test_quota_of_boxes_holds_when_many_are_made_at_once() {
	local i
	serve_start
	api_json POST /v1/boxes '{}' # so that the template is there
	want_code 201
	KEY=$(new_key --org few --boxes 2)
	for i in 1 2 3 4 5 6; do
		curl -sS -o "$TMP/made.$i" -w '%{http_code}\n' -X POST -H "X-API-Key: $KEY" -H 'Content-Type: application/json' \
			--data '{}' "$URL/v1/boxes" >"$TMP/code.$i" &
	done
	wait $(jobs -p | grep -v "^$SERVE_PID$")
	is 'boxes that were made' "$(cat "$TMP"/code.* | grep -c 201)" 2
	api GET /v1/boxes
	is 'boxes that are there' "$(j 'len(v["boxes"])')" 2
	api_json POST /v1/boxes '{}'
	want_code 403 # not 429: clients would try again
	is error "$(j 'v["error"]["code"]')" limit
	has "$(j 'v["error"]["message"]')" 'allows 2 boxes; its boxes have 2, and this would need 1 more'
	has "$(j 'v["error"]["message"]')" 'larger quota'
	api_json POST /sandboxes '{"templateID":"host"}' # E2B's dialect says the same
	want_code 403
	is code "$(j 'v["code"]')" 403
	has "$(j 'v["message"]')" 'allows 2 boxes; its boxes have 2'
	api GET /v1/boxes
	i=$(j 'v["boxes"][0]["id"]')
	api DELETE "/v1/boxes/$i"
	api_json POST /v1/boxes '{}'
	want_code 201
}

#@ root user
test_memory_quota_counts_limits_and_gives_one_to_a_box_without() {
	serve_start
	KEY=$(new_key --memory 600M)
	api_json POST /v1/boxes '{"limits":{"memory":419430400}}'
	if [ "$code" = 501 ] || [ "$code" = 400 ]; then
		skip "limits cannot be enforced here: $out"
	fi
	want_code 201
	api_json POST /v1/boxes '{"limits":{"memory":419430400}}'
	want_code 403
	is error "$(j 'v["error"]["code"]')" limit
	has "$(j 'v["error"]["message"]')" 'allows 600.0 MiB of memory; its boxes have 400.0 MiB, and this would need 400.0 MiB more'
	api_json POST /v1/boxes '{"limits":{"memory":104857600}}'
	want_code 201
}

#@ root user
test_session_of_the_page_needs_its_header_and_ends() {
	local jar=$TMP/jar
	serve_start
	code=$(curl -sS -o /dev/null -w '%{http_code}' -X POST -H 'Content-Type: application/json' \
		--data '{"key":"e2b_0000000000000000000000000000000000000000"}' "$URL/ui/session")
	[ "$code" = 401 ] || [ "$code" = 403 ] || fail "a wrong key gave $code"
	code=$(curl -sS -c "$jar" -o "$TMP/.body" -w '%{http_code}' -D "$TMP/.head" -X POST -H 'Content-Type: application/json' \
		-H 'X-Den-Page: 1' --data "{\"key\":\"$KEY\"}" "$URL/ui/session")
	[ "$code" -lt 300 ] || fail "signing in gave $code: $(cat "$TMP/.body")"
	grep -qi '^set-cookie: den_session=.*httponly' "$TMP/.head" || fail "$(cat "$TMP/.head")"
	grep -qi '^set-cookie: den_session=.*samesite=strict' "$TMP/.head" || fail "$(cat "$TMP/.head")"
	page() {
		code=$(curl -sS -g -b "$jar" -o "$TMP/.body" -w '%{http_code}' "$@")
	}
	page "$URL/v1/whoami"
	is 'reading with the cookie' "$code" 200
	page -X POST -H 'Content-Type: application/json' --data '{}' "$URL/v1/boxes"
	[ "$code" = 401 ] || [ "$code" = 403 ] || fail "a change without X-Den-Page gave $code"
	page -X POST -H 'Content-Type: application/json' -H 'X-Den-Page: 1' --data '{}' "$URL/v1/boxes"
	is 'a change with X-Den-Page' "$code" 201
	id=$(j 'v["id"]')
	page -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' --max-time 5 \
		-H 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==' -H 'Origin: http://evil.example' "$URL/v1/boxes/$id/terminal" || true
	[ "$code" = 401 ] || [ "$code" = 403 ] || fail "a WebSocket of another origin gave $code"
	# it is in the database as a hash alone
	grep -qa "$(awk '/den_session/ { print $NF }' "$jar")" "$DEN_STATE"/serve/serve.db* && fail 'the session is in the database as it is'
	page -X DELETE -H 'X-Den-Page: 1' "$URL/ui/session"
	page "$URL/v1/whoami"
	is 'after signing out' "$code" 401
}

#@ root user
test_session_ends_with_its_key() {
	local jar=$TMP/jar key
	serve_start
	key=$(new_key --org page --scope read)
	curl -sS -c "$jar" -o /dev/null -X POST -H 'Content-Type: application/json' -H 'X-Den-Page: 1' \
		--data "{\"key\":\"$key\"}" "$URL/ui/session"
	is 'before' "$(curl -sS -b "$jar" -o /dev/null -w '%{http_code}' "$URL/v1/whoami")" 200
	den key revoke "$(den key ls --org page --json | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)[-1]["id"])')"
	is 'after' "$(curl -sS -b "$jar" -o /dev/null -w '%{http_code}' "$URL/v1/whoami")" 401
}

# sign_in [CURL-OPTION...]: headers in $TMP/.head, the cookie in $TMP/jar
sign_in() {
	curl -sS -k -c "$TMP/jar" -D "$TMP/.head" -o /dev/null -X POST -H 'Content-Type: application/json' -H 'X-Den-Page: 1' \
		--data "{\"key\":\"$KEY\"}" "$@" "$URL/ui/session"
	session=$(sed -n 's/^set-cookie: [^=]*=\(ses_[0-9a-f]*\);.*/\1/pI' "$TMP/.head")
	[ -n "$session" ] || fail "no session: $(cat "$TMP/.head")"
}

# asked COOKIES WANTED [CURL-OPTION...]: the status of a request with them
asked() {
	is "$1" "$(curl -sS -k -o /dev/null -w '%{http_code}' -H "Cookie: $1" "${@:3}" "$URL/v1/whoami")" "$2"
}

#@ root user
test_session_cookie_that_came_twice_is_not_believed() {
	local other
	serve_start
	sign_in
	other=$session
	sign_in
	asked "a=1; den_session=$session; b=2" 200
	asked "den_session=$other; den_session=$session" 401
	asked "den_session=$session; x=y;den_session=$session" 401
	asked "den_session=; den_session=$session" 401
	asked "den_session=$session" 401 -H "Cookie: den_session=$other"
	asked "den_session=${session}0" 401
	asked "xden_session=$session" 401
	# without TLS the other name says nothing, nor does the claim of a proxy that the server was not told of
	asked "__Host-den_session=$session" 401
	asked "den_session=$session" 200 -H 'X-Forwarded-Proto: https'
	asked "__Host-den_session=$session; den_session=$session" 200
}

#@ root user
test_session_cookie_over_tls_can_be_set_by_no_other_host() {
	serve_start --tls-self-signed
	sign_in
	grep -qi '^set-cookie: __Host-den_session=ses_[0-9a-f]*; Path=/; HttpOnly; SameSite=Strict; Max-Age=[0-9]*; Secure' "$TMP/.head" ||
		fail "$(cat "$TMP/.head")"
	not grep -qi '^set-cookie:.*domain' "$TMP/.head" || fail 'it is for other hosts, too'
	is 'curl believes it' "$(curl -sS -k -b "$TMP/jar" -o /dev/null -w '%{http_code}' "$URL/v1/whoami")" 200
	asked "__Host-den_session=$session" 200
	# what a box could plant
	asked "den_session=$session" 401
	asked "den_session=ses_0; __Host-den_session=$session" 200
	asked "__Host-den_session=$session; __Host-den_session=$session" 401
	curl -sS -k -b "$TMP/jar" -D "$TMP/.head" -o /dev/null -X DELETE -H 'X-Den-Page: 1' "$URL/ui/session"
	grep -qi '^set-cookie: __Host-den_session=;.*Max-Age=0; Secure' "$TMP/.head" || fail "$(cat "$TMP/.head")"
	asked "__Host-den_session=$session" 401
}

#@ root user
test_session_cookie_behind_a_proxy_that_ends_tls() {
	local via=(--unix-socket "$TMP/api.sock" -H 'X-Forwarded-Proto: https')
	serve_start --socket "$TMP/api.sock" --domain den.test --url https://den.test
	URL=http://den.test # what the proxy speaks
	sign_in "${via[@]}"
	grep -qi '^set-cookie: __Host-den_session=.*; Secure' "$TMP/.head" || fail "$(cat "$TMP/.head")"
	asked "__Host-den_session=$session" 200 "${via[@]}"
	asked "den_session=$session" 401 "${via[@]}"
}

#@ root user
test_streams_end_when_their_key_is_revoked() {
	local key id pid
	serve_start
	key=$(new_key --name soon-gone)
	id=$(den key ls --json | /usr/bin/python3 -c '
import json, sys
print([k["id"] for k in json.load(sys.stdin) if k["name"] == "soon-gone"][0])')
	curl -sS -N --max-time 30 -H "Authorization: Bearer $key" "$URL/v1/events" >events 2>&1 &
	pid=$!
	soon 5 grep -q . events || true
	sleep 1
	alive $pid || fail "the stream ended by itself: $(cat events)"
	den key revoke "$id"
	soon 10 dead $pid || fail 'the stream goes on'
	# others do not notice
	api GET /v1/whoami
	want_code 200
}
