# E2B's agent in the box: what its unmodified SDK does with processes and files.
source "$TESTS/serve/kit.sh"

# part NAME: of tests/serve/e2b_box.mjs, which says what was wrong
part() {
	base_template
	serve_start
	SERVER_PID=$(server_pid)
	export SERVER_PID
	node_run e2b_box.mjs "$1"
	alive "$(server_pid)" || fail "the server died: $(serve_log)"
}

#@ root
test_commands_run_as_the_sdk_says() {
	part commands
}

#@ root
test_background_commands_can_be_found_fed_and_left() {
	part background
}

#@ root waits
test_deadlines_end_the_whole_tree_and_silence_is_filled() {
	part timeouts
}

#@ root
test_processes_are_found_by_tag() {
	part tags
}

#@ root
test_terminals_are_terminals() {
	part pty
}

#@ root
test_much_output_and_slow_readers_cost_no_memory() {
	part output
}

#@ root
test_files_of_every_kind_and_name() {
	part files
}

#@ root
test_large_files_stream_both_ways() {
	part large
}

#@ root
test_directories_and_entries() {
	part filesystem
}

#@ root
test_metadata_stays_with_the_file() {
	part metadata
}

#@ root
test_watchers_miss_nothing_and_hold_little() {
	part watch
}

#@ root
test_signed_addresses_are_for_one_path_and_time() {
	part signed
}

#@ root
test_http_as_other_clients_speak_it() {
	part http
}

#@ root
test_a_box_that_goes_breaks_its_streams() {
	part gone
}

#@ root
test_a_full_disk_is_told_as_such() {
	part full
}

#@ root
test_clients_that_leave_leave_nothing() {
	part leaving
}

#@ root
test_an_older_client_finds_the_same() {
	export E2B_PACKAGE=e2b-old
	part commands
	node_run e2b_box.mjs background
	node_run e2b_box.mjs files
}

#@ root
test_git_of_the_sdk_works_in_the_box() {
	part git
}

#@ root
test_host_of_a_port_is_reached_and_goes_with_its_box() {
	part host
}
