# What every black-box test has at hand. tests/run starts it as: bash lib.sh FILE FUNCTION, with
#   DEN        the executable        DEN_STATE  an empty state directory of the test's own
#   TMP        a scratch directory   ATTACKS    the programs that run inside a box
#   VARIANT    root, user or range   TESTS      this folder
#   PROGRAMS   programs that link libden     MEMORY     the program that is carried, see memory/memory.h
# A test is a function that ends with status 0. It runs under `set -e`: a command that fails ends it.
set -eEu

fail() {
	printf 'FAILED %s: %s\n' "$(caller_line)" "$*" >&2
	exit 1
}

skip() {
	printf 'skip: %s\n' "$*" >&2
	exit 77
}

# can_save: what den saves programs with is here, else the test is skipped. That it works is what the test is about.
can_save() {
	local place=${DEN_RUNTIME:-/usr/local/lib/den/runtime}
	[ "$VARIANT" = root ] || skip "programs are saved by root alone"
	if [ "${DEN_WALL:-container}" = gvisor ]; then
		[ -x "$place/bin/runsc" ] || command -v runsc >/dev/null || skip "no runsc on this machine: scripts/runtime.sh runsc"
	else
		[ -x "$place/criu/criu" ] || skip "no CRIU in $place: scripts/runtime.sh criu"
	fi
}

# The line in the test file itself, not the one in a helper.
caller_line() {
	local i
	for ((i = 1; i < ${#BASH_SOURCE[@]}; i++)); do
		if [ "${BASH_SOURCE[$i]##*/}" != lib.sh ]; then
			printf '%s:%s' "${BASH_SOURCE[$i]##*/}" "${BASH_LINENO[$((i - 1))]}"
			return
		fi
	done
}

den() {
	"$DEN" "$@"
}

# try CMD...: runs it and leaves its status in $rc, what it said in $out and $err.
try() {
	rc=0
	"$@" >"$TMP/.out" 2>"$TMP/.err" || rc=$?
	out=$(tr -d '\0' <"$TMP/.out")
	err=$(tr -d '\0' <"$TMP/.err")
}

told() {
	printf 'status %s\nstdout: %.2000s\nstderr: %.2000s' "$rc" "$out" "$err"
}

want_rc() {
	[ "$rc" = "$1" ] || fail "status $rc, not $1 $(printf '\n%s' "$(told)")"
}

want_out() {
	[ "$out" = "$1" ] || fail "output is not '$1' $(printf '\n%s' "$(told)")"
}

want_out_has() {
	grep -Eq -- "$1" <<<"$out" || fail "output has no '$1' $(printf '\n%s' "$(told)")"
}

want_err_has() {
	grep -Eqi -- "$1" <<<"$err" || fail "stderr has no '$1' $(printf '\n%s' "$(told)")"
}

# is WHAT GOT WANTED
is() {
	[ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

# at_most WHAT GOT LIMIT, at_least WHAT GOT LIMIT: whole numbers
at_most() {
	[ "$2" -le "$3" ] || fail "$1 is $2, more than $3"
}

at_least() {
	[ "$2" -ge "$3" ] || fail "$1 is $2, less than $3"
}

# Milliseconds on a clock that does not jump.
now_ms() {
	local up
	read -r up _ </proc/uptime
	echo $((${up/./} * 10))
}

# soon SECONDS CMD...: until CMD works
soon() {
	local end=$(($(now_ms) + $1 * 1000 * ${DEN_TEST_SLOW:-1}))
	shift
	until "$@"; do
		[ "$(now_ms)" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# not CMD...: CMD must fail
not() {
	if "$@"; then
		return 1
	fi
}

# field BOX NAME: of inspect's JSON
field() {
	"$DEN" inspect --json "$1" | /usr/bin/python3 -c '
import json, sys
v = json.load(sys.stdin)
v = v[sys.argv[1]] if sys.argv[1] in v else v["limits"].get(sys.argv[1])
print("" if v is None else v)' "$2"
}

state_of() {
	field "$1" state
}

is_state() {
	[ "$(state_of "$1")" = "$2" ]
}

# One JSON value, or with "lines" one a line; UTF-8, and no control character on the way to a terminal.
is_json() {
	/usr/bin/python3 -c '
import json, sys
text = sys.stdin.buffer.read().decode("utf-8")
values = text.splitlines() if sys.argv[1:] else [text]
if not values: raise SystemExit("nothing at all")
for v in values: json.loads(v)
if any(ord(c) < 32 and c != "\n" for c in text): raise SystemExit("a control character")' "$@"
}

# True while the process is there and no zombie.
alive() {
	[ -d "/proc/$1" ] && ! grep -q '^State:.*[ZX] ' "/proc/$1/status" 2>/dev/null
}

dead() {
	! alive "$1"
}

rss_kb() {
	awk '/^VmRSS:/ { print $2 }' "/proc/$1/status" 2>/dev/null || echo 0
}

sum() {
	sha256sum "$@" | cut -d' ' -f1
}

boxes() {
	"$DEN" ls --quiet
}

# Who holds the lock of a box's directory, without asking anybody.
holder_of() {
	awk -v i=":$(stat -c %i "$DEN_STATE/boxes/$1")" '$2 == "FLOCK" && $4 == "WRITE" && index($6, i) { print $5 }' /proc/locks
}

nobody_keeps() {
	[ -z "$(holder_of "$1")" ]
}

no_boxes() {
	[ -z "$(boxes)" ]
}

# box [OPTION...]: makes one, with the attack programs in it, and says its id
box() {
	"$DEN" create --mount "$ATTACKS:/attacks:ro" "$@"
}

# Deletes every box of the test; part of each test, so a box that cannot be deleted fails it.
remove_all() {
	local id left=0
	[ -d "$DEN_STATE" ] || return 0
	for id in $(boxes); do
		"$DEN" rm --force "$id" || left=1
	done
	return $left
}

finish() {
	local status=$?
	trap - EXIT ERR
	set +e
	local bg
	bg=$(jobs -p)
	if [ -n "$bg" ]; then
		kill $bg 2>/dev/null
		kill -CONT $bg 2>/dev/null
	fi
	[ ! -d "$DEN_STATE/ready" ] || timeout 30 "$DEN" pool warm --none >/dev/null </dev/null
	if ! timeout 30 bash -c 'for i in $("$DEN" ls --quiet); do "$DEN" rm --force "$i" || exit 1; done' </dev/null; then
		if [ $status = 0 ] && [ -d "$DEN_STATE" ]; then
			echo "FAILED: a box could not be deleted"
			status=1
		fi
	fi
	exit $status
}

trap finish EXIT
trap 'status=$?; echo "FAILED at $(caller_line): ${BASH_COMMAND:0:200}: status $status" >&2' ERR
source "$1"
"$2"
