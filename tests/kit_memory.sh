# What the tests of full checkpoints share: boxes with programs in them that check themselves, see memory/memory.h.

# Programs that are not for every box, by wall; each has a test of its own that tells what happens instead.
apart() {
	case ${DEN_WALL:-container} in
	container) ;; # all of them
	gvisor) echo 'deleted' ;; # runsc cannot save a file that is open and has no name
	esac
}

# every: the subjects that every wall must carry
every() {
	local s
	for s in $("$MEMORY/memory" list); do
		case " $(apart) " in *" $s "*) ;; *) echo "$s" ;; esac
	done
}

# carrier [OPTION...]: a box for programs that are carried; or the test is skipped with den's own reason
carrier() {
	"$DEN" create --history manual --mount "$MEMORY:/memory:ro" "$@"
}

ready() {
	"$DEN" exec "$1" -- /memory/memory ask count >"$TMP/.ready" 2>&1
}

# carry BOX SUBJECT...: starts them, and waits until all are set up
carry() {
	local b=$1
	shift
	"$DEN" exec --detach --tag carried "$b" -- /memory/memory all "$@" >/dev/null
	soon 30 ready "$b" || fail "not ready: $(cat "$TMP/.ready"; timeout 5 "$DEN" attach "$b" carried 2>&1)"
}

# tell BOX WORD [SUBJECT]: all must answer "ok"
tell() {
	try timeout 60 "$DEN" exec "$1" -- /memory/memory ask "${@:2}"
	[ "$rc" = 0 ] || fail "$2 in $1: $(grep -v ' ok' <<<"$out"; printf '%s' "$err")"
}

# fine BOX COUNT: all programs find all that they had, after so many steps
fine() {
	tell "$1" check
	tell "$1" count
	[ -z "$(grep -v " ok $2\$" <<<"$out")" ] || fail "of $2 steps: $(grep -v " ok $2\$" <<<"$out")"
}

# full BOX: a full checkpoint; its number
full() {
	timeout 60 "$DEN" checkpoint --quiet --full "$1"
}

# gap BOX: the longest that the program "clock" stood still since it was asked last, in ms
gap() {
	tell "$1" gap clock
	sed 's/.* //' <<<"$out"
}

# with FAULT BOX CMD...: by a keeper of its own, which is gone afterwards
with() {
	local f=$1 b=$2
	shift 2
	drop_keeper "$b"
	try env DEN_TEST="$f" timeout "${patience:-60}" "$DEN" "$@"
	drop_keeper "$b"
}

# Nobody keeps it: so whoever comes next is started anew.
drop_keeper() {
	local pid
	pid=$(holder_of "$1")
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || :
	soon 5 nobody_keeps "$1" || fail "it is still kept"
}

# alone_here BOX: there is no other, and nothing of one
alone_here() {
	touch -d '1 hour ago' "$DEN_STATE"/boxes/* # gc leaves alone what somebody may just be making
	den gc >/dev/null
	[ "$(boxes)" = "$1" ]
}
