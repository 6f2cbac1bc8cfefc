# The native API, route by route, with a client of its own (tests/serve/v1.py); what is acknowledged outlives the server.
source "$TESTS/serve/kit.sh"

v1() {
	SERVER_PID=$(server_pid) /usr/bin/python3 "$TESTS/serve/v1.py" "$@"
}

#@ root
test_v1_boxes() {
	serve_start
	v1 life lists_by_pages_and_filters labels_and_leases idempotent_create figures advice_is_of_routes
}

#@ root
test_v1_refuses_what_it_does_not_know_and_names_the_nearest() {
	serve_start
	v1 unknown_things_are_refused_with_the_nearest
}

#@ root
test_v1_execs() {
	serve_start
	v1 exec_that_is_waited_for exec_as_events exec_that_goes_on exec_signals exec_outlives_its_client_unless_told
}

#@ root
test_v1_terminals_and_websockets() {
	serve_start
	v1 terminal websocket_of_an_exec
}

#@ root
test_v1_files() {
	serve_start
	v1 files file_changes tar watch files_belong_to_the_box_user
}

#@ root
test_v1_large_files_pass_through_little_memory() {
	serve_start
	v1 large_files
}

#@ root
test_v1_history() {
	serve_start
	v1 history undo forks_and_merges templates
}

#@ root
test_v1_policies_and_ports() {
	serve_start
	v1 policies ports
}

#@ root
test_v1_organisations_see_their_own_alone() {
	serve_start
	v1 secrets keys_and_organisations
}

#@ root waits
test_v1_events_and_usage() {
	serve_start
	v1 events events_of_keepers usage
}

#@ root waits
test_v1_usage_survives_a_restart_and_counts_what_was_used_meanwhile() {
	local b cpu
	serve_start
	api_json POST /v1/boxes '{}'
	want_code 201
	b=$(j 'v["id"]')
	api_json POST "/v1/boxes/$b/execs" '{"command": "timeout 8 sh -c \"while :; do :; done\"", "detach": true}'
	want_code 202
	sleep 6
	serve_stop # writes what it knows
	sleep 3
	serve_start
	api GET "/v1/boxes/$b/stats" # what the kernel counted
	cpu=$(j 'v["cpu_usec"] // 1000')
	at_least 'CPU milliseconds' "$cpu" 100
	used() {
		api GET "/v1/usage?box=$b"
		[ "$(j 'sum(r["cpu_ms"] for r in v["usage"])')" -ge $((cpu - 20)) ]
	}
	soon 60 used || fail "usage, not $cpu: $out"
	at_most 'CPU milliseconds' "$(j 'sum(r["cpu_ms"] for r in v["usage"])')" $((cpu + 20))
}

#@ root
test_v1_streams_end_with_the_server_and_programs_do_not() {
	local b pid
	serve_start
	api_json POST /v1/boxes '{}'
	b=$(j 'v["id"]')
	curl -sSN -H "Authorization: Bearer $KEY" -H 'Accept: text/event-stream' -d '{"command": "echo up; sleep 1; echo later; sleep 1000"}' \
		"$URL/v1/boxes/$b/execs" >"$TMP/stream" &
	soon 5 grep -q 'event: stdout' "$TMP/stream"
	pid=$(sed -n 's/^data: {"pid":\([0-9]*\)}$/\1/p' "$TMP/stream")
	serve_stop
	grep -q '"reason":"restart"' "$TMP/stream" || fail "the stream's end: $(cat "$TMP/stream")"
	serve_start
	curl -sSN --max-time 3 -H "Authorization: Bearer $KEY" -H "Last-Event-ID: 3.0" "$URL/v1/boxes/$b/execs/$pid/stream" >"$TMP/again" || true
	grep -q "$(printf 'later\n' | base64)" "$TMP/again" || fail "what came meanwhile: $(cat "$TMP/again")"
	not grep -q "$(printf 'up\n' | base64)" "$TMP/again" || fail 'it was told twice'
}

#@ root
test_v1_what_was_acknowledged_survives_kill_9_of_the_server() {
	serve_start
	/usr/bin/python3 "$TESTS/serve/kill.py" "$SERVE_PID" "$PORT"
}

source "$TESTS/gate/kit.sh"

#@ root net waits
test_v1_what_went_over_the_network_is_in_journal_events_and_usage() {
	local b
	net_up
	serve_start
	echo '{"version": 1, "resolver": ["127.0.0.1"], "allow": ["a.test"]}' >web.json
	den policy save web web.json
	api_json POST /v1/boxes '{"policy_name": "web"}'
	want_code 201
	b=$(j 'v["id"]')
	curl -sSN -H "Authorization: Bearer $KEY" "$URL/v1/events?box=$b&kind=net." >"$TMP/events" &
	sleep 0.3
	api_json POST "/v1/boxes/$b/execs" '{"command": "curl -sS http://a.test/x; curl -sS http://b.test/x"}'
	want_code 200
	is stdout "$(j 'v["stdout"]')" 'served a.test /x'
	soon 5 grep -q 'event: net.denied' "$TMP/events" || fail "no denial: $(cat "$TMP/events")"
	soon 5 grep -q 'event: net.connection' "$TMP/events" || fail "no connection: $(cat "$TMP/events")"
	api GET "/v1/boxes/$b/journal?kind=denial"
	is host "$(j 'v["entries"][-1]["host"]')" b.test
	api GET "/v1/boxes/$b/journal?kind=connection&count=1"
	is host "$(j 'v["entries"][0]["host"]')" a.test
	api GET "/v1/boxes/$b/journal"
	at_least entries "$(j 'len(v["entries"])')" 2
	counted() {
		api GET "/v1/usage?box=$b"
		[ "$(j 'sum(r["net_in"] for r in v["usage"])')" -gt 0 ]
	}
	soon 60 counted || fail "usage: $out"
}
