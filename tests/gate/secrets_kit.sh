# What the tests of secrets and identity share, besides kit.sh: a server (secrets_kit.py) that has a
# certificate of an authority that the policy trusts, and a search for a value that must be nowhere.
source "$TESTS/gate/kit.sh"

# cert NAME FILE SIGNER [OPTION...]: key and certificate in one file; SIGNER "" signs itself
cert() {
	local by=()
	[ -z "$3" ] || by=(-CA "$KIT/$3" -CAkey "$KIT/$3")
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$KIT/k" -out "$KIT/c" \
		"${by[@]}" "${@:4}" 2>/dev/null
	cat "$KIT/k" "$KIT/c" >"$KIT/$2"
	rm "$KIT/k" "$KIT/c"
}

random() {
	od -An -N10 -tx1 /dev/urandom | tr -d ' \n'
}

# secrets_up: names and servers; $VALUE is the secret KEY
secrets_up() {
	local leaf='basicConstraints=critical,CA:FALSE'
	net_up
	cert authority ca.all '' -days 3 -addext 'keyUsage=critical,keyCertSign'
	openssl x509 -in "$KIT/ca.all" -out "$KIT/share/ca.pem"
	cert a.test leaf.pem ca.all -days 2 -addext "$leaf" -addext 'subjectAltName=DNS:a.test,DNS:b.test,DNS:host.den,DNS:s3.w.test'
	cert other.test other.pem ca.all -days 2 -addext "$leaf" -addext 'subjectAltName=DNS:other.test'
	cert a.test unknown.pem '' -days 2 -addext 'subjectAltName=DNS:a.test'
	printf 'subjectAltName=DNS:a.test' >"$KIT/ext"
	openssl req -new -key "$KIT/leaf.pem" -subj /CN=a.test -out "$KIT/csr" 2>/dev/null
	openssl x509 -req -in "$KIT/csr" -CA "$KIT/ca.all" -CAkey "$KIT/ca.all" -set_serial 9 -days -1 -extfile "$KIT/ext" \
		-out "$KIT/c" 2>/dev/null
	cat "$KIT/leaf.pem" "$KIT/c" | sed -n '/PRIVATE KEY/,/PRIVATE KEY/p' >"$KIT/old.pem"
	cat "$KIT/c" >>"$KIT/old.pem"
	/usr/bin/python3 "$TESTS/gate/secrets_kit.py" "$KIT" 127.0.0.1 $PUB $PUB2 &
	soon 10 test -e "$KIT/secrets-ready"
	: >>"$KIT/seen"
	VALUE=sk-live-$(random)
	printf %s "$VALUE" | den secret set KEY >/dev/null
}

# secret_box OPTION...: one that trusts the server's authority, and has the search
secret_box() {
	net_box --trust "$KIT/share/ca.pem" "$@"
}

# keyed [OPTION...]: the usual grant
keyed() {
	secret_box --secret KEY@a.test:9443:header=x-api-key "$@"
}

mark_of() {
	den exec "$1" -- printenv "${2:-KEY}"
}

seen() {
	grep -Eq -- "$1" "$KIT/seen"
}

want_seen() {
	soon 3 seen "$1" || fail "the server saw nothing like '$1': $(tail -n 10 "$KIT/seen")"
}

want_unseen() {
	sleep 0.1
	not seen "$1" || fail "the server saw: $(grep -E -- "$1" "$KIT/seen" | head -n 3)"
}

incident() {
	den incidents "$1" 2>&1 | grep -Eq -- "$2"
}

want_incident() {
	soon 3 incident "$1" "$2" || fail "no incident like '$2': $(den incidents "$1")"
}

# want_clean: the last command's output has no value
want_clean() {
	not grep -qF -- "${1:-$VALUE}" <<<"$out$err" || fail "the value: $(told)"
}

# forms VALUE: as it may be written down
forms() {
	/usr/bin/python3 -c '
import base64, sys
v = sys.argv[1].encode()
print(v.decode(), v.hex(), v[::-1].decode(), sep="\n")
for i in range(3):  # each alignment, without the ends that depend on what is around
    print(base64.b64encode(b"x" * i + v)[4:-4].decode())' "$1"
}

# nowhere_inside BOX VALUE: memory, environment and files, from inside, as root of the box
nowhere_inside() {
	forms "$2" >"$KIT/share/forms" # a file that is not the box's: through a pipe it would be in init's memory
	echo "control-of-the-search" >>"$KIT/share/forms"
	den exec -e CONTROL=control-of-the-search "$1" -- sleep 600 &
	local pid=$!
	soon 5 den exec "$1" -- pgrep -x sleep >/dev/null
	den exec "$1" -- sh -c 'echo control-of-the-search >/var/tmp/control'
	try timeout $((120 * ${DEN_TEST_SLOW:-1})) "$DEN" exec "$1" -- /usr/bin/python3 /gate/secrets_search.py /share/forms
	rm "$KIT/share/forms"
	kill $pid
	wait $pid || :
	want_rc 0
	# it finds what is there: in memory, in an environment, in a file
	want_out_has '^control: .*memory of [0-9]+ sleep'
	want_out_has '^control: .*environment of [0-9]+ sleep'
	want_out_has '^control: .*/var/tmp/control'
	not grep '^value: ' <<<"$out" || fail "the value is inside"
}

# nowhere_outside VALUE: in no file of the state directory, in no listing
nowhere_outside() {
	local f id
	forms "$1" >"$TMP/forms"
	for id in $(boxes); do
		den inspect --json "$id"
		den policy show --json "$id"
		den journal "$id"
		den denials "$id"
		den incidents "$id"
	done >"$TMP/listings" 2>&1
	den secret ls --json >>"$TMP/listings"
	at_least 'length of what was listed' "$(wc -c <"$TMP/listings")" 500
	not grep -aF -f "$TMP/forms" "$TMP/listings" || fail 'the value is told'
	f=$(grep -rlaF --exclude-dir=templates --exclude-dir=lib --exclude-dir=pool --exclude=pool.img -f "$TMP/forms" "$DEN_STATE" 2>/dev/null || :)
	[ -z "$f" ] || fail "the value is in $f"
	echo "control-$1" >"$DEN_STATE/control"
	grep -rqaF --exclude-dir=templates --exclude-dir=lib --exclude-dir=pool --exclude=pool.img -f "$TMP/forms" "$DEN_STATE" || fail 'the search finds nothing'
	rm "$DEN_STATE/control"
}
