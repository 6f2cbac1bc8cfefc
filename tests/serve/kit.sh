# A den serve of the test's own. To be sourced by tests/cli/serve_*.sh (after lib.sh):
#   serve_start [OPTION...]   starts one on a free port, with the test's state directory; sets
#                             $URL (http://127.0.0.1:PORT) $KEY (all scopes) $PORT $SERVE_PID (the launcher)
#                             and E2B_API_KEY, E2B_API_URL, E2B_SANDBOX_URL, E2B_VOLUME_API_URL
#   serve_stop                ends it, as lib.sh's finish does at the end of the test
#   serve_log                 what it said so far
#   api METHOD PATH [CURL-OPTION...]      status in $code, body in $out, headers in $TMP/.head
#   api_json METHOD PATH JSON             the same with a body
#   want_code N               the status was N
#   has TEXT PART             the text has that part
#   j EXPR                    python expression on the last body, as `v`:  j 'v["id"]'
#   new_key [OPTION...]       another key: den key create
#   node_run FILE.mjs [ARG...]  runs tests/serve/FILE.mjs with the packages of scripts/npm-test.sh; skips without
URL='' KEY='' PORT='' SERVE_PID=''

serve_log() {
	cat "$TMP/serve.log"
}

serve_up() {
	dead "$SERVE_PID" || grep -q '"ready"' "$TMP/serve.log" 2>/dev/null
}

serve_start() {
	: >"$TMP/serve.log"
	"$DEN" serve --log json --no-templates --listen "127.0.0.1:${PORT:-0}" "$@" >>"$TMP/serve.log" 2>&1 &
	SERVE_PID=$!
	soon 20 serve_up || fail "the server does not come up: $(serve_log)"
	alive "$SERVE_PID" || fail "the server ended: $(serve_log)"
	URL=$(sed -n 's/.*listening at \([^ ,]*\),.*/\1/p' "$TMP/serve.log" | head -n 1)
	PORT=${URL##*:}
	[ -n "$KEY" ] || KEY=$(new_key --name test --scope admin)
	export E2B_API_KEY=$KEY E2B_API_URL=$URL E2B_SANDBOX_URL=$URL E2B_VOLUME_API_URL=$URL
	export DEN_URL=$URL DEN_KEY=$KEY
}

serve_stop() {
	[ -n "$SERVE_PID" ] || return 0
	kill "$SERVE_PID" 2>/dev/null || true
	soon 15 dead "$SERVE_PID" || fail 'the server does not end'
	wait "$SERVE_PID" 2>/dev/null || true
	SERVE_PID=''
}

# The process that speaks HTTP: the launcher's child that is not its waker.
server_pid() {
	local p
	for p in $(pgrep -P "$SERVE_PID"); do
		[ "$(cat "/proc/$p/comm")" = den-waker ] || echo "$p"
	done | head -n 1
}

new_key() {
	"$DEN" key create "$@"
}

api() {
	local method=$1 path=$2
	shift 2
	code=$(curl -sS -g --max-time 30 -X "$method" -D "$TMP/.head" -o "$TMP/.body" -w '%{http_code}' \
		-H "Authorization: Bearer $KEY" "$@" "$URL$path" 2>"$TMP/.err") || code=000
	out=$(tr -d '\0' <"$TMP/.body")
	err=$(cat "$TMP/.err")
	rc=$code
}

api_json() {
	local method=$1 path=$2 body=$3
	shift 3
	api "$method" "$path" -H 'Content-Type: application/json' --data-binary "$body" "$@"
}

want_code() {
	[ "$code" = "$1" ] || fail "status $code, not $1: ${out:0:1000} $err"
}

# has TEXT PART
has() {
	case $1 in
	*"$2"*) ;;
	*) fail "'$1' does not say '$2'" ;;
	esac
}

j() {
	/usr/bin/python3 -c '
import json, sys
v = json.load(open(sys.argv[1]))
r = eval(sys.argv[2])
print(json.dumps(r) if isinstance(r, (dict, list, bool)) or r is None else r)' "$TMP/.body" "$1"
}

# A template `base` of this machine's own system, in no time: what is tested here needs bash and a user `user`.
base_template() {
	local b
	b=$(den create --history manual)
	den exec "$b" -- sh -c 'id -u user >/dev/null 2>&1 || useradd -m -s /bin/bash user; mkdir -p /home/user && chown user: /home/user'
	den template create base --from "$b" --user user --workdir /home/user >/dev/null
	den rm -f "$b"
}

# npm's packages are where scripts/npm-test.sh put them.
node_run() {
	local build
	build=$(dirname "$(readlink -f "$DEN")")
	[ -f "$build/node/ok" ] || skip "the npm packages are not installed: scripts/npm-test.sh $build"
	if [ -x "$build/node/bin/node" ]; then
		PATH="$build/node/bin:$PATH"
	fi
	mkdir -p "$TMP/node"
	ln -sfn "$build/node/node_modules" "$TMP/node/node_modules"
	cp "$TESTS"/serve/*.mjs "$TMP/node/"
	(cd "$TMP/node" && node "$@")
}
