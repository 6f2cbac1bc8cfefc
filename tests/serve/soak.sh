#!/bin/bash
# Many clients of E2B's unmodified SDK at once (soak.mjs), against a server with a state directory of its own.
#   tests/serve/soak.sh BUILD [CLIENTS [TURNS]]
# First a small wave, then all; afterwards no box, process or descriptor may be left, and the server's memory must
# be bounded: a share for each client while they are there, and no growth over what the first wave left.
# SOAK_STATE names the state directory (else a temporary one, which is removed). Status 77: npm's packages or the
# server are not there.
set -euo pipefail

build=$(cd "${1:?usage: tests/serve/soak.sh BUILD [CLIENTS [TURNS]]}" && pwd)
clients=${2:-300} turns=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
den=$build/den
node=$build/node/bin/node
work=$(mktemp -d "${TMPDIR:-/tmp}/den-soak.XXXXXX")
state=${SOAK_STATE:-$work/state}
launcher=''

# The server's own share, and what a client may cost at the most while it is there, in KiB.
base_kib=32768 client_kib=128
# What may stay of a wave, in KiB: the allocator keeps some.
stay_kib=16384

fail() {
	echo "soak: $*" >&2
	tail -n 20 "$work/log" >&2 || true
	exit 1
}

stop() {
	[ -n "$launcher" ] || return 0
	kill "$launcher" 2>/dev/null || true
	for _ in $(seq 200); do
		kill -0 "$launcher" 2>/dev/null || break
		sleep 0.1
	done
	if kill -0 "$launcher" 2>/dev/null; then
		kill -9 "$launcher"
		echo 'soak: the server did not end' >&2
		return 1
	fi
	wait "$launcher"
	launcher=''
}

boxes() {
	"$den" ls --quiet
}

finish() {
	local rc=$?
	stop || rc=1
	boxes 2>/dev/null | xargs -r "$den" rm -f >/dev/null 2>&1 || true
	if [ -z "${SOAK_STATE:-}" ]; then
		"$den" template ls --quiet 2>/dev/null | xargs -r "$den" template rm >/dev/null 2>&1 || true
		"$den" gc >/dev/null 2>&1 || true
	fi
	rm -rf "$work" || rc=1
	exit "$rc"
}

# status NAME: a line of the server's /proc/PID/status, in KiB
status() {
	awk -v name="$1:" '$1 == name { print $2 }' "/proc/$server/status"
}

fds() {
	find "/proc/$server/fd" -mindepth 1 2>/dev/null | wc -l
}

# quiet FDS: back to so many descriptors, and a few; workers that have nothing to do end after a while
quiet() {
	for _ in $(seq 150); do
		[ "$(fds)" -gt $(($1 + 20)) ] || return 0
		sleep 0.1
	done
	return 1
}

# wave CLIENTS TURNS: how long they took is in $ms
wave() {
	local before
	before=$(date +%s%N)
	NODE_DIR=$build/node "$node" "$here/soak.mjs" "$1" "$2" || fail "a client of $1 was not served as it should be"
	ms=$((($(date +%s%N) - before) / 1000000))
	[ -z "$(boxes)" ] || fail "boxes are left: $(boxes | tr '\n' ' ')"
	kill -0 "$server" 2>/dev/null || fail 'the server is gone'
	quiet "$fds_before" || fail "$(fds) descriptors are open, $fds_before were"
}

[ -x "$build/den-serve" ] || { echo 'soak: this build has no den-serve' >&2; exit 77; }
[ -f "$build/node/ok" ] || { echo "soak: the npm packages are not installed: scripts/npm-test.sh $build" >&2; exit 77; }
[ -x "$node" ] || node=$(command -v node)

trap finish EXIT
trap 'exit 1' INT TERM
export DEN_STATE=$state
: >"$work/log"
"$den" template builtin base >/dev/null
"$den" serve --log json --no-templates --listen 127.0.0.1:0 >"$work/log" 2>&1 &
launcher=$!
for _ in $(seq 200); do
	grep -q '"ready"' "$work/log" && break
	kill -0 "$launcher" 2>/dev/null || fail 'the server ended'
	sleep 0.1
done
url=$(sed -n 's/.*listening at \([^ ,]*\),.*/\1/p' "$work/log" | head -n 1)
[ -n "$url" ] || fail 'the server does not come up'
server=$(pgrep -P "$launcher" | head -n 1)
E2B_API_KEY=$("$den" key create --name soak --scope admin)
export E2B_API_KEY E2B_API_URL=$url E2B_SANDBOX_URL=$url

fds_before=$(fds)
wave $((clients < 20 ? clients : 20)) 1
first=$(status VmRSS)
wave "$clients" "$turns"
peak=$(status VmHWM) last=$(status VmRSS)
stop || fail 'the server ended with a failure'
echo "$clients clients, $turns turns each: $ms ms; the server had $((peak / 1024)) MiB at the most," \
	"$((first / 1024)) MiB after the first wave, $((last / 1024)) MiB at the end; $fds_before descriptors"
most=$((base_kib + clients * client_kib))
[ "$peak" -le "$most" ] || fail "the server needed $peak KiB, and may need $most"
[ "$last" -le $((first + stay_kib + clients * 64)) ] || fail "the server keeps $last KiB, after the first wave $first"
not_well=$(grep -c '"level":"error"' "$work/log" || true)
[ "$not_well" -eq 0 ] || fail "the server's log has $not_well errors"
