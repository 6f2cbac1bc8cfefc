# The random run: many operations with kill -9 in between; then everything acknowledged must
# be there and nothing else. `tests/fault/run N SEED` repeats one.

#@ root timeout=240
test_random_kills_lose_nothing_and_leave_nothing() {
	/usr/bin/python3 "$TESTS/fault/run" 1200 "${FAULT_SEED:-$(date +%s)}"
}

#@ user timeout=180
test_random_kills_of_an_ordinary_users_boxes_leave_nothing() {
	/usr/bin/python3 "$TESTS/fault/run" 400 "${FAULT_SEED:-$(date +%s)}"
}
