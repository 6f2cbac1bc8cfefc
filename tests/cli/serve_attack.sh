# What one tenant tries on the others, and on the server.
source "$TESTS/serve/kit.sh"

# streams KEY N: opens N; $STREAMS: how many there are of each status. They stay until streams_end.
streams() {
	/usr/bin/python3 - "$PORT" "$1" "$2" "$TMP/streams" >/dev/null <<-'EOF' &
		import os, socket, sys, time
		port, key, n, told = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
		all, codes = [], {}
		for i in range(n):
		    s = socket.create_connection(("127.0.0.1", port))
		    s.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n\r\n".encode())
		    all.append(s)
		    code = s.recv(12)[9:].decode()
		    codes[code] = codes.get(code, 0) + 1
		with open(told + ".part", "w") as f:
		    f.write(" ".join(f"{k}:{v}" for k, v in sorted(codes.items())))
		os.rename(told + ".part", told)
		time.sleep(60)
	EOF
	STREAMS_PID=$!
	soon 20 test -e "$TMP/streams" || fail 'no streams'
	STREAMS=$(cat "$TMP/streams")
}

streams_end() {
	kill "$STREAMS_PID" 2>/dev/null || true
	wait "$STREAMS_PID" 2>/dev/null || true
}

#@ root user
test_one_organisation_does_not_take_all_threads() {
	local other
	serve_start --workers 16
	other=$(new_key --org other)
	streams "$(new_key --org greedy)" 20
	is 'streams of one organisation' "$STREAMS" '200:12 429:8'
	KEY=$other
	api GET /v1/whoami
	want_code 200
	api GET /healthz
	want_code 200
	streams_end
}

#@ root user
test_health_is_told_when_all_threads_are_taken() {
	serve_start --workers 4
	streams "$KEY" 6 # an administrator's, who has no share
	api GET /v1/whoami
	want_code 503
	api GET /healthz
	want_code 200
	streams_end
}

#@ root user timeout=120
test_templates_of_everybody_and_digests_of_others_are_out_of_reach() {
	local admin id box
	serve_start
	admin=$KEY
	api_json POST /v1/boxes '{}'
	want_code 201
	box=$(j 'v["id"]')
	api_json POST "/v1/boxes/$box/commit" '{"name":"base"}'
	want_code 201
	KEY=$(new_key --org theirs)
	api_json POST /v1/boxes '{"name":"b"}'
	want_code 201
	api_json POST /v1/boxes/b/commit '{"name":"private"}'
	want_code 201
	id=$(j 'v["id"]')
	KEY=$(new_key) # of "default", whose names are the plain ones, and no administrator
	api_json POST /v1/boxes '{"name":"d"}'
	want_code 201
	for name in base base:v2 code-interpreter-v1 pulled/python:3; do
		api_json POST /v1/boxes/d/commit "{\"name\":\"$name\"}"
		want_code 403
	done
	api DELETE '/v1/templates/base?force=1'
	want_code 403
	api_json POST /v1/boxes/d/commit '{"name":"own"}'
	want_code 201
	api_json POST /v1/templates/own/tags '{"name":"base"}'
	want_code 403
	for name in "$id" "${id:0:12}" "${id:0:20}"; do
		api GET "/v1/templates/$name"
		want_code 404
		api_json POST /v1/boxes "{\"template\":\"$name\"}"
		want_code 404
		api DELETE "/v1/templates/$name?force=1"
		want_code 404
	done
	KEY=$admin
	api GET /v1/templates/base
	want_code 200
}

#@ root user
test_secrets_are_granted_by_keys_that_may_have_them() {
	local policy='{"policy":{"version":1,"secrets":[{"name":"TOKEN","host":"api.example.com","in":["header:authorization"]}]}}'
	serve_start
	KEY=$(new_key --org some --scope boxes)
	api_json POST /v1/boxes '{"name":"b"}'
	want_code 201
	api_json PUT /v1/boxes/b/policy "$policy"
	want_code 403
	want_out_has "scope 'secrets'"
	api_json PUT /v1/boxes/b/policy '{"policy":{"version":1,"allow":["example.com"]}}'
	want_code 200
}

#@ root
test_fork_of_a_box_without_limits_does_not_get_around_a_quota() {
	serve_start
	KEY=$(new_key --org some)
	api_json POST /v1/boxes '{"name":"b"}'
	want_code 201
	KEY=$(new_key --org some --memory 256M)
	api_json POST /v1/boxes/b/fork '{}'
	want_code 403
}

#@ root
test_server_has_nothing_that_its_caller_had_open() {
	echo secret >"$TMP/secret"
	exec 7<"$TMP/secret"
	serve_start
	exec 7<&-
	if ls -l "/proc/$(server_pid)/fd" "/proc/$SERVE_PID/fd" | grep -F "$TMP/secret"; then
		fail 'a descriptor of the caller is there'
	fi
	is 'its input' "$(readlink "/proc/$(server_pid)/fd/0")" /dev/null
}
