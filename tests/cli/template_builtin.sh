# Templates that den makes by itself: base and code-interpreter-v1. They stand on what this machine has, so
# nothing here needs a network; where the machine lacks a package that the code interpreter needs, it says so.

interpreter_packages() {
	/usr/bin/python3 -c 'import ipykernel, zmq, numpy, pandas, matplotlib' 2>/dev/null ||
		skip 'this machine has no ipykernel, pandas or matplotlib (scripts/deps.sh test)'
}

# state_of_builtin NAME
state_of_builtin() {
	den template builtin --json | /usr/bin/python3 -c '
import json, sys
print(next(t["state"] for t in json.load(sys.stdin) if t["name"] == sys.argv[1]))' "$1"
}

# label NAME LABEL
label() {
	den template inspect --json "$1" | /usr/bin/python3 -c '
import json, sys
print(json.load(sys.stdin)["config"]["config"]["Labels"].get(sys.argv[1], ""))' "$2"
}

#@ root user range fresh timeout=120
test_builtin_base_has_what_e2b_expects() {
	local id again b
	try den template builtin
	want_rc 0
	want_out_has '^base +missing'
	want_out_has '^code-interpreter-v1 +missing'
	id=$(den template builtin base)
	is 'length of the id' "${#id}" 64
	is state "$(state_of_builtin base)" built
	try den template builtin base --json
	want_rc 0
	is_json <<<"$out"
	want_out_has '"made":false'
	want_out_has "\"id\":\"$id\""
	b=$(den create --template base)
	if [ "$VARIANT" = user ]; then # the only id is root's
		try den exec "$b" -- sh -c 'id -un; pwd'
		want_out "$(printf 'root\n/home/user')"
	else
		try den exec "$b" -- sh -c 'id -un; id -u; pwd; echo $HOME; getent passwd user | cut -d: -f7'
		want_out "$(printf 'user\n1000\n/home/user\n/home/user\n/bin/bash')"
	fi
	if [ -x /usr/bin/python3 ]; then
		try den exec "$b" -- python -c 'print(6 * 7)'
		want_out 42
	fi
	if [ -x /usr/bin/sudo ] && [ "$VARIANT" != user ] && [ "${DEN_WALL:-}" != gvisor ]; then # that kernel takes no setuid bit
		try den exec "$b" -- sudo -n id -u
		want_out 0
	fi
	try den exec "$b" -- sh -c 'ls -A /tmp; for t in bash git curl tput; do command -v $t >/dev/null || echo no $t; done'
	want_out "$(for t in bash git curl tput; do [ -x "/usr/bin/$t" ] || [ -x "/bin/$t" ] || echo "no $t"; done)"
	# made again only when asked to
	again=$(den template builtin base)
	is 'id of what is up to date' "$again" "$id"
	try den template builtin base --force --json
	want_out_has '"made":true'
	no_boxes || [ "$(boxes)" = "$b" ] || fail 'a box was left behind'
}

#@ root timeout=120
test_builtin_names_are_kept_from_others_and_old_ones_are_seen() {
	local b
	b=$(den create)
	den template create base --from "$b" >/dev/null
	is state "$(state_of_builtin base)" other
	try den template builtin base
	want_rc 4
	want_err_has '\-\-force'
	den template builtin base --force >/dev/null
	is state "$(state_of_builtin base)" built
	# one that another den made, from other files
	cat >Dockerfile <<-'END'
		FROM base
		LABEL den.builtin=0000
	END
	den template build -t base . >/dev/null 2>&1
	is state "$(state_of_builtin base)" old
	den template builtin base >/dev/null
	is state "$(state_of_builtin base)" built
}

#@ root user fresh timeout=60
test_builtin_says_what_is_wrong() {
	try den template builtin bsae
	want_rc 3
	want_err_has "did you mean 'base'"
	try den template builtin nonsense-of-mine
	want_rc 3
	want_err_has 'den template builtin'
	try den template builtin --force
	want_rc 2
	want_err_has 'NAME'
	for bad in 'a b' ',' 'x;y' '-y' '$(id)'; do
		try den template builtin base --packages "$bad"
		want_rc 2
		want_err_has 'no list of names|packages'
	done
	[ "$(state_of_builtin base)" = missing ] || fail 'something was made'
}

#@ root timeout=200 waits
test_builtin_code_interpreter_runs_cells() {
	local b where
	interpreter_packages
	try den template builtin code-interpreter --json
	want_rc 0
	want_out_has '"name":"code-interpreter-v1"'
	want_out_has '"warnings":\[\]'
	is alias "$(den template inspect --json code-interpreter | grep -o '"id":"[^"]*"')" "$(den template inspect --json code-interpreter-v1 | grep -o '"id":"[^"]*"')"
	is 'what it stands on' "$(state_of_builtin base)" built
	is port "$(label code-interpreter-v1 den.port)" 49999
	b=$(den create --template code-interpreter-v1)
	den exec --detach "$b" -- bash -l -c "$(label code-interpreter-v1 den.start)" >/dev/null
	soon 20 den exec "$b" -- bash -l -c "$(label code-interpreter-v1 den.ready)" 2>/dev/null || fail 'it does not come up'
	where=$(den port "$b" 49999 | sed 's|http://||; s|/$||')
	for group in python rich charts javascript bash contexts; do
		try timeout 60 /usr/bin/python3 "$TESTS/programs/interpreter.py" "$where" "$group"
		want_rc 0
	done
}

#@ root timeout=200 waits
test_builtin_code_interpreter_survives_trouble() {
	local b where left
	interpreter_packages
	den template builtin code-interpreter >/dev/null
	b=$(den create --template code-interpreter-v1)
	den exec --detach --tag server "$b" -- bash -l -c "$(label code-interpreter-v1 den.start)" >/dev/null
	soon 20 den exec "$b" -- bash -l -c "$(label code-interpreter-v1 den.ready)" 2>/dev/null || fail 'it does not come up'
	where=$(den port "$b" 49999 | sed 's|http://||; s|/$||')
	for group in trouble load; do
		try timeout 100 /usr/bin/python3 "$TESTS/programs/interpreter.py" "$where" "$group"
		want_rc 0
	done
	# when it ends, nothing of it stays
	den kill "$b" server >/dev/null
	soon 10 den exec "$b" -- sh -c '! pgrep -f '"'[i]nterpreter/'"'' || fail 'a kernel was left behind'
	left=$(den exec "$b" -- sh -c 'ls -d /tmp/den-interpreter-* 2>/dev/null' || true)
	is 'what is left in /tmp' "$left" ''
}

#@ root timeout=240
test_builtin_installs_what_is_asked_for() {
	local b
	[ -x /usr/bin/apt-get ] || skip 'no apt-get on this machine'
	if ! timeout 200 "$DEN" template builtin base --packages hello >log 2>&1; then
		tail -n 20 log
		grep -Eqi 'Could not resolve|Temporary failure|Unable to connect|Cannot initiate|Unable to locate|Failed to fetch' log &&
			skip 'apt-get cannot reach its mirror here'
		fail 'apt-get failed'
	fi
	is 'what is remembered' "$(label base den.builtin.packages)" hello
	b=$(den create --template base)
	try den exec "$b" -- hello
	want_out 'Hello, world!'
	# the way out was the maker's alone
	try den exec --user root "$b" -- apt-get -o Acquire::Retries=0 update
	want_err_has 'Could not resolve|Temporary failure|Unable to connect|Cannot initiate|Failed to fetch'
	try den template builtin base --json
	want_out_has '"made":false'
}
