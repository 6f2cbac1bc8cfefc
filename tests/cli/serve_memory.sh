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

# build_from TEMPLATE: a build, to its end; its status is the last answer
build_from() {
	local id
	build_over() {
		api GET "/templates/from-it/builds/$id/status" -H "X-API-Key: $KEY"
		[[ $(j 'v["status"]') == @(error|ready) ]]
	}
	api_json POST /v3/templates '{"name":"from-it"}' -H "X-API-Key: $KEY"
	want_code 202
	id=$(j 'v["buildID"]')
	api_json POST "/v2/templates/from-it/builds/$id" "{\"fromTemplate\":\"$1\"}" -H "X-API-Key: $KEY"
	want_code 202
	soon 60 build_over || fail "the build does not end: $out"
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
	# nor as what a build begins with
	build_from running
	is 'a build from programs of others' "$(j 'v["status"]')" error
	want_out_has "'running' not found"
	[[ $out != *FROM* ]] || fail "a box was made of programs of others: $out"
	# what an admin has found under the name is not found by others
	KEY=$(new_key --org theirs --scope admin)
	api_json POST /sandboxes '{"templateID":"running"}' -H "X-API-Key: $KEY"
	want_code 201
	KEY=$(new_key --org theirs)
	api_json POST /sandboxes '{"templateID":"running"}' -H "X-API-Key: $KEY"
	want_code 404
	KEY=$(new_key) # of "default"
	build_from running
	want_out_has FROM
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

# quota_key SIZE: a key of another organisation with so much disk; $QUOTA_KEY
quota_key() {
	QUOTA_KEY=$(new_key --org bounded --disk "$1")
}

# as KEY METHOD PATH [JSON]
as() {
	local KEY=$1
	if [ $# -gt 3 ]; then
		api_json "$2" "$3" "$4"
	else
		api "$2" "$3"
	fi
}

# of_usage FIELD: the last answer of /v1/usage, its part about disk
of_usage() {
	as "$QUOTA_KEY" GET /v1/usage
	want_code 200
	j "v['disk']['$1']"
}

hog() { # BOX MIB: a program with so much memory in it
	den exec "$1" -- rm -f /tmp/full
	as "$QUOTA_KEY" POST "/v1/boxes/$1/execs" '{"detach":true,"command":"exec python3 -c \"import os,time; x=os.urandom('"$2"'<<20); open(\\\"/tmp/full\\\",\\\"w\\\").close(); time.sleep(1e6)\""}'
	want_code 202
	soon 20 "$DEN" exec "$1" -- test -e /tmp/full || fail 'the program does not come up'
}

#@ root timeout=240
test_saved_programs_count_against_the_quota_of_disk() {
	local box first n before
	can_save
	serve_start
	quota_key 300M
	as "$QUOTA_KEY" POST /v1/boxes '{"limits":{"disk":104857600},"history":"manual"}'
	want_code 201
	box=$(j 'v["id"]')
	is 'nothing is saved yet' "$(of_usage images)" 0
	is 'its limit counts' "$(of_usage boxes)" 104857600
	hog "$box" 60
	as "$QUOTA_KEY" POST "/v1/boxes/$box/checkpoints" '{"full":true}'
	want_code 201
	first=$(j 'v["number"]')
	n=$(of_usage images)
	[ "$n" -gt 60000000 ] || fail "60 MiB of programs count as $n bytes"
	as "$QUOTA_KEY" GET "/v1/boxes/$box"
	[ "$(j 'v["images"]')" -gt 60000000 ] || fail "the box does not tell what it has on disk: $out"
	[ "$(den inspect --json "$box" | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["images"])')" -gt 60000000 ] || fail 'nor does den inspect'
	# 100 and about 65 are taken: of memory that no longer fits nothing is written
	hog "$box" 80
	before=$(find "$DEN_STATE/memory/$box" -mindepth 1 -maxdepth 1 | sort)
	as "$QUOTA_KEY" POST "/v1/boxes/$box/checkpoints" '{"full":true}'
	want_code 403
	want_out_has 'disk quota'
	as "$QUOTA_KEY" POST "/v1/boxes/$box/pause" '{"disk":true}'
	want_code 403
	as "$QUOTA_KEY" POST "/v1/boxes/$box/bake" '{"name":"warm"}'
	want_code 403
	as "$QUOTA_KEY" POST "/v1/boxes/$box/fork" '{"full":true}'
	want_code 403
	if "$DEN" checkpoint --full "$box" >/dev/null 2>&1; then fail 'den itself passes the quota over'; fi
	is 'nothing was written' "$(find "$DEN_STATE/memory/$box" -mindepth 1 -maxdepth 1 | sort)" "$before"
	is 'and it runs on' "$(den exec "$box" -- sh -c 'pgrep -c python3')" 2
	# another box does not fit either, until what was saved is gone
	as "$QUOTA_KEY" POST /v1/boxes '{"limits":{"disk":157286400}}'
	want_code 403
	want_out_has 'saved programs'
	as "$QUOTA_KEY" POST /v1/boxes '{"limits":{"disk":20971520}}'
	want_code 201
	as "$QUOTA_KEY" DELETE "/v1/boxes/$(j 'v["id"]')"
	as "$QUOTA_KEY" DELETE "/v1/boxes/$box"
	want_code 204
	is 'what is deleted does not count' "$(of_usage images)" 0
	as "$QUOTA_KEY" POST /v1/boxes '{"limits":{"disk":157286400}}'
	want_code 201
}

#@ root timeout=240
test_box_that_goes_to_disk_by_itself_is_held_to_the_quota() {
	local box
	can_save
	serve_start
	quota_key 110M
	as "$QUOTA_KEY" POST /v1/boxes '{"limits":{"disk":104857600},"idle_ms":3000,"on_idle":"pause-disk"}'
	want_code 201
	box=$(j 'v["id"]')
	hog "$box" 30
	paused() { [ "$(den inspect --json "$box" | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["state"])')" = paused ]; }
	soon 30 paused || fail 'it is not paused'
	is 'in memory, not on disk' "$(den inspect --json "$box" | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["on_disk"])')" False
	is 'nothing is on disk' "$(of_usage images)" 0
}

#@ root timeout=240
test_key_with_a_quota_of_disk_has_templates_with_programs() {
	local box other n
	can_save
	serve_start
	quota_key 400M
	as "$QUOTA_KEY" POST /v1/boxes '{"limits":{"disk":104857600}}'
	want_code 201
	box=$(j 'v["id"]')
	hog "$box" 20
	as "$QUOTA_KEY" POST "/v1/boxes/$box/bake" '{"name":"warm"}'
	want_code 201
	n=$(of_usage images)
	[ "$n" -gt 20000000 ] || fail "the template's programs count as $n bytes"
	as "$QUOTA_KEY" DELETE "/v1/boxes/$box"
	want_code 204
	[ "$(of_usage images)" -gt 20000000 ] || fail "without its box the template's programs count as $(of_usage images) bytes"
	[ "$(of_usage templates)" -gt 0 ] || fail "the template's files do not count"
	is 'boxes' "$(of_usage boxes)" 0
	as "$QUOTA_KEY" POST /v1/boxes '{"template":"warm"}'
	want_code 201
	box=$(j 'v["id"]')
	is 'its programs run' "$(den exec "$box" -- pgrep -c python3)" 1
	is 'its limit is the first one'"'"'s' "$(of_usage boxes)" 104857600
	# there is room for one more, not for two
	as "$QUOTA_KEY" POST /v1/boxes '{"template":"warm"}'
	want_code 201
	other=$(j 'v["id"]')
	as "$QUOTA_KEY" POST /v1/boxes '{"template":"warm"}'
	want_code 201
	as "$QUOTA_KEY" POST /v1/boxes '{"template":"warm"}'
	want_code 403
	for box in "$box" "$other" "$(as "$QUOTA_KEY" GET /v1/boxes >/dev/null; j 'v["boxes"][0]["id"]')"; do
		as "$QUOTA_KEY" DELETE "/v1/boxes/$box"
	done
	as "$QUOTA_KEY" DELETE /v1/templates/warm
	want_code 204
	is 'a template that is gone does not count' "$(of_usage images)" 0
	is 'nor do its files' "$(of_usage templates)" 0
	# of a box without a limit nobody could say what its boxes would take
	as "$(new_key --org bounded)" POST /v1/boxes '{}'
	box=$(j 'v["id"]')
	as "$(new_key --org bounded)" POST "/v1/boxes/$box/bake" '{"name":"vast"}'
	want_code 201
	as "$QUOTA_KEY" POST /v1/boxes '{"template":"vast"}'
	want_code 403
	want_out_has 'without a limit'
	den template rm o.bounded.vast
}

#@ root timeout=180
test_template_with_programs_is_told_as_an_event() {
	local box
	can_save
	serve_start
	curl -sSN --max-time 60 -H "Authorization: Bearer $KEY" "$URL/v1/events?kind=template." >"$TMP/events" 2>/dev/null &
	sleep 1
	api_json POST /v1/boxes '{}'
	box=$(j 'v["id"]')
	api_json POST "/v1/boxes/$box/bake" '{"name":"warm"}'
	want_code 201
	soon 10 grep -q template.made "$TMP/events" || fail "no event: $(cat "$TMP/events")"
	has "$(cat "$TMP/events")" '"name":"warm"'
	den template rm warm
}

# e2b METHOD PATH [JSON]: as a client of E2B with the bounded key
e2b() {
	if [ $# -gt 2 ]; then
		api_json "$1" "$2" "$3" -H "X-API-Key: $QUOTA_KEY"
	else
		api "$1" "$2" -H "X-API-Key: $QUOTA_KEY"
	fi
}

seeds() {
	find "$DEN_STATE/baked" -mindepth 1 -printf '%l\n' | sort
}

#@ root timeout=240
test_snapshot_takes_the_place_of_another_when_it_is_whole() {
	local box first second t
	can_save
	base_template
	serve_start
	quota_key 600M # of which a box gets half, unasked
	e2b POST /sandboxes '{"templateID":"base","timeout":200}'
	want_code 201
	box=b-$(j 'v["sandboxID"][1:]')
	den exec "$box" -- sh -c 'echo one >/home/user/which'
	e2b POST "/sandboxes/i${box#b-}/snapshots" '{"name":"snap"}'
	want_code 201
	[[ $out != *filesOnly* ]] || fail "it has the files alone: $out"
	first=$(seeds)
	den exec "$box" -- sh -c 'echo two >/home/user/which'
	# one that cannot be made leaves the first where it is, and is no snapshot of files instead
	hog "$box" 350
	e2b POST "/sandboxes/i${box#b-}/snapshots" '{"name":"snap"}'
	want_code 403
	is 'the first is there' "$(seeds)" "$first"
	is 'and nothing else' "$(den template ls --json | grep -c bounded.snap)" 1
	den exec "$box" -- pkill python3
	e2b POST "/sandboxes/i${box#b-}/snapshots" '{"name":"snap"}'
	want_code 201
	second=$(seeds)
	[ "$second" != "$first" ] || fail 'it was not replaced'
	is 'one seed' "$(wc -l <<<"$second")" 1
	[ ! -e "$DEN_STATE/boxes/$first" ] || fail 'the old one was not removed'
	[ ! -e "$DEN_STATE/memory/$first" ] || fail 'nor its programs'
	t=$(den create --template o.bounded.snap)
	is 'a box of it' "$(den exec "$t" -- cat /home/user/which)" two
	den rm -f "$t"
	den template rm o.bounded.snap
}

#@ root timeout=240
test_snapshot_of_files_says_so_and_takes_the_place_of_programs() {
	local box second t
	can_save
	base_template
	serve_start
	QUOTA_KEY=$KEY
	e2b POST /sandboxes '{"templateID":"base","timeout":200}'
	want_code 201
	box=b-$(j 'v["sandboxID"][1:]')
	e2b POST "/sandboxes/i${box#b-}/snapshots" '{"name":"snap"}'
	want_code 201
	second=$(seeds)
	den exec "$box" -- sh -c 'echo three >/home/user/which'
	e2b POST "/sandboxes/i${box#b-}/pause" '{"memory":false}'
	want_code 204
	e2b POST "/sandboxes/i${box#b-}/snapshots" '{"name":"snap"}'
	want_code 201
	want_out_has filesOnly
	is 'no programs are left' "$(seeds)" ''
	[ ! -e "$DEN_STATE/memory/$second" ] || fail 'the old programs are on disk'
	t=$(den create --template snap)
	is 'a box of the files' "$(den exec "$t" -- cat /home/user/which)" three
	den rm -f "$t"
	# and back: programs take the place of files
	e2b POST "/sandboxes/i${box#b-}/connect" '{"timeout":200}'
	want_code 201
	den exec "$box" -- sh -c 'echo four >/home/user/which'
	e2b POST "/sandboxes/i${box#b-}/snapshots" '{"name":"snap"}'
	want_code 201
	[[ $out != *filesOnly* ]] || fail "it has the files alone: $out"
	is 'one template of that name' "$(den template ls --json | grep -c '"snap"')" 1
	t=$(den create --template snap)
	is 'a box of the programs' "$(den exec "$t" -- cat /home/user/which)" four
	den rm -f "$t"
	den template rm snap
	if "$DEN" template show snap >/dev/null 2>&1; then fail 'files of the same name came back'; fi
}

#@ root timeout=300
test_template_with_a_start_command_is_kept_with_it_running() {
	OTHER_KEY=$(new_key --org theirs)
	export OTHER_KEY
	part template
}

#@ root
test_mcp_is_refused_in_words() {
	base_template
	serve_start
	api_json POST /sandboxes '{"templateID":"mcp-gateway","mcp":{"github":{}}}' -H "X-API-Key: $KEY"
	want_code 501
	want_out_has 'mcp'
	want_out_has 'commands.run()'
	api_json POST /sandboxes '{"templateID":"base","mcp":{"github":{}}}' -H "X-API-Key: $KEY"
	want_code 201
}

# Several forks are of one instant, for which the programs are saved first: not for who may have none of them.
#@ root
test_who_may_have_no_fork_has_nothing_saved_for_it() {
	local id
	can_save
	serve_start
	KEY=$(new_key --org few --boxes 1)
	api_json POST /v1/boxes '{"name":"b"}'
	want_code 201
	id=$(j 'v["id"]')
	api_json POST /v1/boxes/b/fork '{"full":true,"count":2}'
	want_code 403
	has "$out" 'allows 1 box'
	api_json POST "/sandboxes/$id/fork" '{"count":2}'
	has "$out" 'allows 1 box'
	is 'what was saved for a fork' "$("$DEN" log --json "$id" | grep -c 'for a fork')" 0
	is 'boxes that are there' "$("$DEN" ls --json | grep -c '"id"')" 1
}
