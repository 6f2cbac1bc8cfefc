# What the tests of the gate share: servers outside (kit.py), programs inside (poke.py).
#
# In the network of the test's own the "public" Internet is two servers, and there are some that no box
# may reach by itself:
PUB=192.175.48.5
PUB2=192.175.48.6
PUB6=2620:4f:8000::5
PRIV=10.9.8.7
META=169.254.169.254
KIT=$TMP/kit

zone() {
	printf '%s\n' "$@" >>"$KIT/zone.new"
	cp "$KIT/zone.new" "$KIT/zone.put"
	mv "$KIT/zone.put" "$KIT/zone" # never half a zone
}

# net_up: the servers, names, and a policy that knows whom to ask
net_up() {
	[ -n "${OWN_NETWORK:-}" ] || skip 'only root can give a test a network of its own'
	mkdir "$KIT"
	zone "a.test A $PUB" "a.test AAAA $PUB6" "b.test A $PUB2" "six.test AAAA $PUB6" "*.w.test A $PUB" \
		"w.test A $PUB" "priv.test A $PRIV" "meta.test A $META" "loop.test A 127.0.0.1" \
		"loop6.test AAAA ::1" "mapped.test AAAA ::ffff:$PRIV" "ula.test AAAA fd00::7" "mixed.test A $PRIV $PUB" \
		"alias.test CNAME a.test" "dead.test A 192.175.48.99" "fail.test A fail" "fail.test AAAA fail"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=kit -days 2 \
		-addext 'subjectAltName=DNS:a.test,DNS:b.test,DNS:six.test,DNS:*.w.test,DNS:priv.test,DNS:host.den' \
		-keyout "$KIT/key.pem" -out "$KIT/cert.pem" 2>/dev/null
	mkdir "$KIT/share"
	cp "$KIT/cert.pem" "$KIT/share/"
	/usr/bin/python3 "$TESTS/gate/kit.py" "$KIT" $PUB $PUB2 $PUB6 $PRIV $META fd00::7 &
	echo '{"version": 1, "resolver": ["127.0.0.1"]}' >p.json
	soon 10 test -e "$KIT/ready"
}

# net_box OPTION...: a box whose names are ours
net_box() {
	den create --policy ./p.json --mount "$TESTS/gate:/gate:ro" --mount "$KIT/share:/share:ro" "$@"
}

# allowed RULE...: a box with these rules
allowed() {
	local r args=()
	for r; do args+=(--allow "$r"); done
	net_box "${args[@]}"
}

# inside BOX CMD...: $rc, $out, $err
inside() {
	try timeout 20 "$DEN" exec "$1" -- "${@:2}"
}

# poke BOX WHAT...: see poke.py; what it said is in $out
poke() {
	inside "$1" /usr/bin/python3 /gate/poke.py "${@:2}"
	want_rc 0
}

# says WANTED BOX WHAT...
says() {
	poke "${@:2}"
	[ "$out" = "$1" ] || fail "${*:3}: '$out', not '$1'"
}

# all_say REGEX BOX <<<LINES: each of the lines, see poke.py, ends like that
all_say() {
	inside "$2" /usr/bin/python3 /gate/poke.py lines
	want_rc 0
	[ -n "$out" ] || fail 'nothing was tried'
	not grep -Ev -- ": ($1)\$" <<<"$out" || fail "not all are $1"
}

came() {
	grep -Eq -- "$1" "$KIT/log" 2>/dev/null
}

# What reached the servers, or must not have. A moment is given to what may be on its way.
want_came() {
	soon 3 came "$1" || fail "nothing like '$1' reached the servers: $(tail -n 30 "$KIT/log")"
}

want_nothing() {
	sleep 0.1
	not came "$1" || fail "reached the servers: $(grep -E -- "$1" "$KIT/log" | head -n 5)"
}

# denials BOX: as the box reads them
denials() {
	den exec "$1" -- cat /run/den/denials
}

denied() {
	denials "$1" | grep -Eq -- "$2"
}

want_denial() {
	soon 3 denied "$1" "$2" || fail "no denial like '$2': $(denials "$1")"
}

# journal BOX: lines of JSON
journal() {
	cat "$DEN_STATE/boxes/$1/journal"
}

journal_has() {
	journal "$1" | grep -Eq -- "$2"
}

want_journal() {
	soon 3 journal_has "$1" "$2" || fail "no record like '$2': $(journal "$1")"
}

generation() {
	den policy show --json "$1" | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["generation"])'
}

# gate_pid BOX: the gate's process; of a box whose keeper started it
gate_pid() {
	pgrep -x den-gate -P "$(field "$1" keeper_pid)"
}
