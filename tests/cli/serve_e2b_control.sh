# E2B's control plane: what its unmodified SDKs do to boxes, templates, secrets and networks.
source "$TESTS/gate/kit.sh"
source "$TESTS/serve/kit.sh"

# part NAME: of tests/serve/e2b_control.mjs, which says what was wrong
part() {
	base_template
	serve_start
	export DEN
	node_run e2b_control.mjs "$1"
}

#@ root range
test_a_sandbox_is_made_told_about_and_killed() {
	part life
}

#@ root timeout=180
test_sandboxes_are_taken_from_ready_boxes() {
	base_template
	serve_start --warm base=2
	FEW_KEY=$(new_key --name few --boxes 5 --memory 8G --cpus 8 --disk 1G)
	export DEN FEW_KEY
	node_run e2b_control.mjs ready
	serve_stop
	soon 30 is_ready_again || fail "what is ready does not outlive the server"
	try den serve --warm base
	want_err_has 'TEMPLATE=N'
}

ready_marks() {
	find "$DEN_STATE/ready" -mindepth 2 | wc -l
}

has_ready() {
	[ "$(ready_marks)" = "$1" ]
}

#@ root timeout=180
test_what_no_box_can_be_ready_for_does_not_empty_the_pool_of_others() {
	local i policy='{"version":1,"secrets":[{"name":"TOKEN","host":"api.example.com","in":["header:authorization"]}]}'
	base_template
	printf %s 'a value of some length' | den secret set TOKEN >/dev/null
	serve_start --warm base=1
	soon 30 has_ready 1 || fail "none is made ready"
	for i in 1 2 3; do
		api_json POST /v1/boxes "{\"template\":\"base\",\"policy\":$policy}"
		want_code 201
	done
	api_json POST /sandboxes '{"templateID":"base"}' -H "X-API-Key: $KEY"
	want_code 201
	is 'ready, when one was taken' "$(ready_marks)" 0
	soon 40 has_ready 1 || fail "no more are made: $(curl -s "$URL/metrics" -H "Authorization: Bearer $KEY" | grep ready_boxes)"
}

is_ready_again() {
	den pool --json | grep -q '"template":"base"'
}

#@ root
test_old_clients_are_understood() {
	part old
}

#@ root
test_lists_are_filtered_and_come_in_pages() {
	part list
}

#@ root waits
test_a_timeout_kills_or_pauses() {
	part expiry
}

#@ root
test_a_paused_sandbox_goes_on_where_it_was() {
	part pause
}

#@ root
test_who_comes_to_a_paused_sandbox_wakes_it_if_it_was_made_so() {
	part wake
}

#@ root
test_metrics_are_measured() {
	part metrics
}

#@ root
test_snapshots_outlive_their_sandbox() {
	part snapshots
}

#@ root
test_forks_go_their_own_way() {
	part fork
}

#@ root net
test_the_network_is_as_it_was_asked_for_and_changes_at_once() {
	net_up
	export PUB PUB2
	part network
}

#@ root
test_secrets_are_kept_and_never_told() {
	part secrets
}

#@ root
test_templates_are_built_from_steps() {
	part template
}

#@ root
test_failures_are_what_the_sdk_understands() {
	OTHER_KEY=$(new_key --name other --org other)
	PLAIN_KEY=$(new_key --name plain)
	READ_KEY=$(new_key --name read --scope read)
	export OTHER_KEY PLAIN_KEY READ_KEY
	part errors
}

#@ root range
test_volumes_outlive_sandboxes_and_are_shared() {
	OTHER_KEY=$(new_key --name other --org other)
	export OTHER_KEY
	part volumes
	[ "$(find "$DEN_STATE/volumes" -mindepth 2 | wc -l)" = 0 ] || fail 'a volume that was destroyed is not empty'
	is 'mode of volumes' "$(stat -c %a "$DEN_STATE/volumes")" 700
}

#@ root
test_too_many_requests_are_told_when_to_come_back() {
	SLOW_KEY=$(new_key --name slow --org slow --rate 10)
	export SLOW_KEY
	part rate
}

#@ root
test_quota_is_refused_in_full_and_not_as_a_matter_of_patience() {
	FEW_KEY=$(new_key --name few --org few --boxes 1)
	export FEW_KEY
	part quota
}

#@ root
test_builds_that_were_never_started_are_swept() {
	local old
	base_template
	serve_start
	api_json POST /v3/templates '{"name": "never"}'
	want_code 202
	old=$(j 'v["buildID"]')
	age() {
		/usr/bin/python3 -c 'import sqlite3,sys
d = sqlite3.connect(sys.argv[1], timeout=10)
d.execute("UPDATE e2b_builds SET created_ms = created_ms - 90000000 WHERE id = ?", (sys.argv[2],))
d.commit()' "$DEN_STATE/serve/serve.db" "$1"
	}
	api_json POST /v3/templates '{"name": "never"}'
	want_code 202
	api GET "/templates/never/builds/$old/status"
	want_code 200 # it may still be started
	age "$old"
	api_json POST /v3/templates '{"name": "never"}'
	want_code 202
	api GET "/templates/never/builds/$old/status"
	want_code 404
}

# A build goes with its server, and the next one says so; what was uploaded and built before stays.
#@ root
test_a_build_that_a_restart_cut_off_is_an_error_not_a_riddle() {
	local id
	base_template
	serve_start
	api_json POST /v3/templates '{"name": "cut"}'
	want_code 202
	id=$(j 'v["buildID"]')
	api_json POST "/v2/templates/cut/builds/$id" '{"fromTemplate": "base", "steps": [{"type": "RUN", "args": ["sleep 1000"]}]}'
	want_code 202
	running() {
		api GET "/templates/cut/builds/$id/status"
		[ "$(j 'v["status"]')" = building ] && grep -q 'RUN sleep' <<<"$out"
	}
	soon 20 running || fail "not building: $out"
	kill -9 "$(server_pid)"
	soon 15 dead "$SERVE_PID"
	soon 20 no_boxes || fail "the box of the build stayed: $(boxes)"
	serve_start
	api GET "/templates/cut/builds/$id/status"
	want_code 200
	[ "$(j 'v["status"]')" = error ] || fail "$out"
	[[ $(j 'v["reason"]["message"]') == *restarted* ]] || fail "$out"
	api_json POST "/v2/templates/cut/builds/$id" '{"fromTemplate": "base"}'
	want_code 409
}

#@ root
test_box_of_a_build_has_no_more_than_the_quota_of_its_key() {
	local id said b
	base_template
	serve_start
	for said in '' ', "cpuCount": 8, "memoryMB": 4096'; do
		KEY=$(new_key --org bounded --cpus 0.5 --memory 512M)
		api_json POST /v3/templates "{\"name\": \"bounded\"$said}"
		want_code 202
		id=$(j 'v["buildID"]')
		api_json POST "/v2/templates/bounded/builds/$id" '{"fromTemplate": "base", "steps": [{"type": "RUN", "args": ["sleep 5"]}]}'
		want_code 202
		built() {
			for b in $(boxes); do
				den inspect --json "$b" | grep -q "e2b.build=$id" && return 0
			done
			return 1
		}
		soon 20 built || fail "no box of the build: $(boxes)"
		is "cpus$said" "$(field "$b" cpu_milli)" 500
		is "memory$said" "$(field "$b" memory)" $((512 << 20))
	done
	soon 30 no_boxes || fail "the boxes of the builds are still there: $(boxes)" # the server removes them itself
}
