# Boxes with their programs on disk, through the server: E2B's SDK (tests/serve/e2b_memory.mjs), /v1, the page.
source "$TESTS/serve/kit.sh"

part() {
	can_save
	base_template
	serve_start
	export DEN
	node_run e2b_memory.mjs "$1"
}

#@ root timeout=180
test_paused_sandbox_is_on_disk_and_comes_back_with_its_programs() {
	part pause
}

#@ root timeout=180
test_who_comes_to_a_sandbox_on_disk_wakes_it_if_it_was_made_so() {
	part wake
}

#@ root timeout=180
test_fork_of_a_sandbox_has_its_programs_and_the_first_goes_on() {
	part fork
}

#@ root timeout=180
test_snapshot_of_a_sandbox_has_its_programs() {
	part snapshot
}

#@ root timeout=180
test_v1_keeps_programs_on_disk() {
	can_save
	serve_start
	CAN_SAVE=1 SERVER_PID=$(server_pid) /usr/bin/python3 "$TESTS/serve/v1.py" pause_to_disk full_checkpoints_and_forks idle_goes_to_disk baked_templates
}

#@ root timeout=180
test_templates_with_programs_are_their_organisations_alone() {
	local box
	can_save
	serve_start
	api_json POST /v1/boxes '{"env":{"GIVEN":"in-confidence"}}'
	want_code 201
	box=$(j 'v["id"]')
	api_json POST "/v1/boxes/$box/commit" '{"name":"files"}'
	want_code 201
	api_json POST "/v1/boxes/$box/bake" '{"name":"running"}'
	want_code 201
	KEY=$(new_key --org theirs)
	api GET /v1/templates
	want_code 200
	want_out_has '"files"'
	[[ $out != *'"running"'* && $out != *in-confidence* ]] || fail "programs of others are seen: $out"
	api GET /v1/templates/running
	want_code 404
	api_json POST /v1/boxes '{"template":"running"}'
	want_code 404
	api_json POST /sandboxes '{"templateID":"running"}' -H "X-API-Key: $KEY"
	want_code 404
	api GET /templates -H "X-API-Key: $KEY"
	want_code 200
	[[ $out == *files* && $out != *running* ]] || fail "programs of others are seen: $out"
	api_json POST /v1/boxes '{"template":"files"}'
	want_code 201
	KEY=$(new_key) # of "default"
	api_json POST /v1/boxes '{"template":"running","name":"named"}'
	want_code 201
	den rm --force named
	den template rm running
}

#@ root timeout=180
test_sandbox_that_cannot_be_made_takes_nothing_from_the_next() {
	local box m
	can_save
	base_template
	serve_start
	api_json POST /sandboxes '{"templateID":"base"}' -H "X-API-Key: $KEY"
	want_code 201
	box=$(j 'v["sandboxID"]')
	api_json POST "/sandboxes/$box/snapshots" '{"name":"hurt"}' -H "X-API-Key: $KEY"
	want_code 201
	for m in "$DEN_STATE"/memory/*/0/manifest; do
		: >"$m"
	done
	api_json POST /sandboxes '{"templateID":"hurt","autoPause":true}' -H "X-API-Key: $KEY"
	want_code 501
	api_json POST /sandboxes '{"templateID":"base","autoPause":true}' -H "X-API-Key: $KEY"
	want_code 201
	is 'at its end' "$(den inspect --json "$(j 'v["sandboxID"]')" | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["on_expire"])')" pause-disk
	den template rm hurt
}

#@ root user
test_v1_hibernates_anywhere_and_says_what_it_cannot() {
	serve_start
	SERVER_PID=$(server_pid) /usr/bin/python3 "$TESTS/serve/v1.py" hibernate what_cannot_be_saved_is_told
}

#@ root timeout=180
test_page_shows_boxes_on_disk() {
	can_save
	command -v "${CHROMIUM:-chromium}" >/dev/null || skip 'chromium is not installed'
	serve_start
	curl -s -o /dev/null -f "$URL/ui" || skip 'den-serve was built without its page (npm was missing)'
	CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
	export TMP CHROMIUM
	node_run ui.mjs on_disk
}
