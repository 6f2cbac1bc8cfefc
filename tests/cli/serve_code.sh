# The code interpreter through E2B's unmodified @e2b/code-interpreter.
source "$TESTS/serve/kit.sh"

# part NAME: of tests/serve/code_interpreter.mjs, which says what was wrong
part() {
	/usr/bin/python3 -c 'import ipykernel, zmq, numpy, pandas, matplotlib' 2>/dev/null ||
		skip 'this machine has no ipykernel, pandas or matplotlib (scripts/deps.sh test)'
	den template builtin code-interpreter-v1 >/dev/null
	serve_start
	node_run code_interpreter.mjs "$1"
}

#@ root timeout=120
test_sdk_runs_python_and_hears_it_as_it_comes() {
	part python
}

#@ root timeout=120
test_sdk_gets_tables_pictures_and_charts() {
	part rich
}

#@ root timeout=120
test_sdk_runs_other_languages_or_is_told_how_to_get_them() {
	part languages
}

#@ root timeout=120
test_sdk_has_contexts_of_its_own() {
	part contexts
}

#@ root timeout=150 waits
test_sdk_gives_up_kills_and_loses_nothing_else() {
	part trouble
}
