# The page at /ui, in a real browser: tests/serve/ui.mjs has what is tried, one function each.
source "$TESTS/serve/kit.sh"

# page NAME: one test of ui.mjs, against a server of our own
page() {
	command -v "${CHROMIUM:-chromium}" >/dev/null || skip 'chromium is not installed'
	export TMP CHROMIUM
	CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
	[ -n "$URL" ] || serve_start
	curl -s -o /dev/null -f "$URL/ui" || skip 'den-serve was built without its page (npm was missing)'
	node_run ui.mjs "$1"
}

#@ root timeout=180
test_page_signing_in_gives_a_cookie_that_no_script_reads() {
	page signing_in
}

#@ root timeout=180
test_page_session_is_for_the_page_alone() {
	page session_needs_our_page
}

#@ root timeout=180
test_page_shows_boxes_as_they_come_and_go() {
	serve_start
	(
		soon 60 test -e "$TMP/want-box" && den create --name by-hand >/dev/null
		soon 60 test -e "$TMP/want-none" && den rm --force by-hand
	) &
	page list_is_live
	wait $!
}

#@ root timeout=180
test_page_makes_a_box() {
	page create_form
}

#@ root timeout=180
test_page_two_people_share_a_terminal() {
	page two_watch_one_terminal
}

#@ root timeout=180
test_page_files() {
	page files
}

#@ root timeout=180
test_page_history_forks_and_rolls_back() {
	page history
}

#@ root timeout=180
test_page_denial_is_allowed_by_its_button() {
	page allow_a_denial
}

#@ root timeout=180
test_page_keys_and_templates() {
	page keys_and_templates
}

#@ root timeout=180
test_page_shares_a_port() {
	page ports
}

#@ root timeout=180
test_page_light_and_dark() {
	page light_and_dark
}

#@ root timeout=180
test_page_shows_all_of_its_table_at_1280_and_800_pixels() {
	page widths
}

#@ root timeout=180
test_page_fits_400_pixels() {
	page narrow
}

#@ root timeout=180
test_page_by_keyboard_alone() {
	page keyboard_alone
}

#@ root timeout=180
test_page_is_accessible_when_light() {
	page accessible_light
}

#@ root timeout=180
test_page_is_accessible_when_dark() {
	page accessible_dark
}

#@ root timeout=180
test_page_hostile_names_do_nothing() {
	page hostile_names_do_nothing
}

#@ root timeout=180
test_page_policy_and_caching() {
	page policy_of_the_page
}

#@ root timeout=180
test_page_comes_back_after_the_server() {
	serve_start
	(
		soon 60 test -e "$TMP/want-down" && serve_stop && : >"$TMP/is-down"
		soon 60 test -e "$TMP/want-up" || exit 1
		exec "$DEN" serve --log json --no-templates --listen "127.0.0.1:$PORT" >>"$TMP/serve.log" 2>&1
	) &
	page comes_back_by_itself
	kill $! 2>/dev/null || true
	wait $! 2>/dev/null || true
}
