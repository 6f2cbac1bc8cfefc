# Clients of E2B's unmodified SDK at once, few of them; `make soak` has several hundred.

#@ root timeout=180
test_clients_at_once_are_served_and_leave_nothing() {
	local rc=0
	SOAK_STATE=$DEN_STATE "$TESTS/serve/soak.sh" "$(dirname "$(readlink -f "$DEN")")" 20 1 || rc=$?
	[ "$rc" != 77 ] || skip 'the server or the npm packages are not there'
	is 'status' "$rc" 0
}
