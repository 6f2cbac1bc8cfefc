# What the tests of history share.

# js EXPRESSION: of the JSON value v on standard input
js() {
	/usr/bin/python3 -c '
import json, sys
v = json.load(sys.stdin)
r = eval(sys.argv[1])
print("" if r is None else r)' "$1"
}

# Nothing is shared with these: a mount point would be a change of its own.
box() {
	"$DEN" create "$@"
}

points() {
	den log --quiet "$1" | wc -l
}

head_of() {
	den log --json "$1" | js '[c["number"] for c in v if c["head"]][0]'
}

# in_box BOX SCRIPT...: a turn
in_box() {
	local b=$1
	shift
	den exec "$b" -- sh -c "$*"
}

# What is in the pool, one entry a line; an image is looked into when no keeper has it any more.
in_pool() {
	if [ -e "$DEN_STATE/pool.img" ]; then
		mkdir -p "$TMP/look"
		unshare -m sh -c 'mount -o loop,ro "$0" "$1" && ls -A "$1"' "$DEN_STATE/pool.img" "$TMP/look"
	else
		ls -A "$DEN_STATE/pool"
	fi | grep -vx -e layers -e '\.index' || :
}

pool_is_empty() {
	[ -z "$(in_pool)" ]
}
