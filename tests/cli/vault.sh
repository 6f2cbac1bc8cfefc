# Secrets and identity: what is at rest, what a thief or a vandal can do with it, what accidents leave, and
# whether others can verify what is signed.

VAULT=${DEN%/*}/den-vault
# One of its own, which no other test had before.
COMMON_STATE=$DEN_STATE
export DEN_STATE=$TMP/vault-state
mkdir "$DEN_STATE"
BOX=b-aaaaaaaaaaaaaaaaaa

tool() {
	/usr/bin/python3 "$TESTS/programs/vault.py" "$@"
}

# vault REQUEST: past den, as a keeper asks
vault() {
	printf '%s' "$1" | "$VAULT" "$DEN_STATE"
}

# get NAME: its value, which only a keeper is told
get() {
	vault "{\"op\":\"secret.get\",\"names\":[\"$1\"]}" |
		/usr/bin/python3 -c 'import base64, json, sys
sys.stdout.buffer.write(base64.b64decode(list(json.load(sys.stdin)["ok"]["values"].values())[0]))'
}

put() {
	printf '%s' "$2" | den secret set "$1"
}

# sign ALG [TTL]: a token
sign() {
	vault "{\"op\":\"token.sign\",\"alg\":\"$1\",\"ttl\":${2:-600},\"claims\":{\"sub\":\"box:$BOX\",\
\"aud\":\"https://api.internal\",\"den\":{\"org\":\"acme\",\"task\":\"t-1\",\"box\":\"$BOX\",\
\"template\":\"host-1\",\"policy_generation\":3,\"scopes\":[\"read\"],\"parent\":\"b-bbbbbbbbbbbbbbbbbb\"}}}" |
		json ok token
}

kid_of() {
	/usr/bin/python3 -c 'import base64, json, sys
print(json.loads(base64.urlsafe_b64decode(sys.argv[1].split(".")[0] + "=="))["kid"])' "$1"
}

# json KEY...: of the document on stdin
json() {
	/usr/bin/python3 -c 'import json, sys
v = json.load(sys.stdin)
for k in sys.argv[1:]: v = v[int(k) if k.isdigit() else k]
print(v if isinstance(v, str) else json.dumps(v))' "$@"
}

test_secret_value_is_in_no_file() {
	local v=correct-horse-battery-staple f
	put ONE "$v"
	printf '%s\n' "file-$v" >value.txt
	den secret set TWO --file value.txt
	put ONE "again-$v"
	den secret ls >/dev/null
	is ONE "$(get ONE)" "again-$v"
	is TWO "$(get TWO)" "file-$v"
	for f in "$v" "$(printf %s "$v" | base64)" "$(printf %s "$v" | od -An -tx1 | tr -d ' \n')" battery; do
		! grep -rqaF -- "$f" "$DEN_STATE" || fail "'$f' is in $(grep -rlaF -- "$f" "$DEN_STATE")"
	done
	# so that a search that finds nothing proves something
	printf %s "$v" >"$DEN_STATE/here"
	grep -rqaF -- "$v" "$DEN_STATE" || fail "the search itself finds nothing"
	rm "$DEN_STATE/here"
	is modes "$(stat -c %a "$DEN_STATE/vault" "$DEN_STATE/vault/key" "$DEN_STATE/vault/secrets/ONE" | tr '\n' ' ')" \
		'700 600 600 '
}

test_secret_listing_tells_names_and_never_values() {
	try den secret ls --json
	want_rc 0
	want_out '[]'
	put B_2 value-of-b
	put A.1 value-of-a
	try den secret ls --quiet
	want_out "$(printf 'A.1\nB_2')"
	den secret ls --json | is_json
	try den secret ls --json
	! grep -q value-of <<<"$out" || fail "a value"
	is names "$(json 0 name <<<"$out")" A.1
	try den secret rm A.1 NOPE
	want_rc 3
	want_err_has "no secret 'NOPE'"
	try den secret ls --quiet
	want_out B_2
	try den secret rotate A.1 <<<other-value
	want_rc 3
	want_err_has 'to rotate'
	den secret rotate B_2 <<<other-value
	is value "$(get B_2)" other-value
}

test_secret_names_that_could_lead_elsewhere_are_refused() {
	local n
	for n in '' . .. ../key a/b 1A -A .A 'A B' 'A$' "$(printf 'A\nB')" ü "$(printf 'A%.0s' {1..65})"; do
		try den secret set -- "$n" <<<long-enough
		want_rc 2
		try den secret rm -- "$n"
		want_rc 2
	done
	n=$(printf 'A%.0s' {1..64})
	den secret set "$n" <<<long-enough
	is list "$(den secret ls -q)" "$n"
	is files "$(ls -A "$DEN_STATE/vault/secrets")" "$n"
}

test_secret_values_have_a_length_and_one_line() {
	local v
	try den secret set A </dev/null
	want_rc 2
	want_err_has empty
	for v in 'value\nvalue' 'value\r\nvalue\n' 'value\rvalue' 'value\0value' '\n\n\n\n\n\n\n\n\n'; do
		# shellcheck disable=SC2059
		try den secret set A < <(printf "$v")
		want_rc 2
		want_err_has 'line break'
	done
	# a few letters are in every answer: swapped back, they would mangle it
	try den secret set A <<<1234567
	want_rc 2
	want_err_has 'has 7 bytes; a secret has 8 or more'
	try den secret rotate A <<<1234567
	want_rc 2
	is list "$(den secret ls -q)" ''
	den secret set A < <(printf '12345678\n')
	is 'one newline is no part of it' "$(get A)" 12345678
	is length "$(get A | wc -c)" 8
	den secret set A < <(printf '\xff\x01 \x7fabcd')
	is 'any other byte is' "$(get A | od -An -tx1 | tr -d ' ')" ff01207f61626364
	head -c 65536 /dev/zero | tr '\0' x >big
	den secret set A --file big
	is length "$(get A | wc -c)" 65536
	echo >>big
	den secret set A --file big
	echo x >>big
	try den secret set A --file big
	want_rc 6
	is length "$(get A | wc -c)" 65536
	try den secret set A --file /nowhere
	want_rc 3
}

test_secret_value_does_not_go_on_the_command_line() {
	try den secret set A hunter2
	want_rc 2
	want_err_has 'command line'
	is list "$(den secret ls -q)" ''
}

test_secret_prompt_shows_nothing() {
	is status "$(tool prompt "$DEN" A typed-value)" 0
	is value "$(get A)" typed-value
	is 'status after ^C' "$(tool prompt "$DEN" B '^C')" -2
	is list "$(den secret ls -q)" A
}

test_vault_that_others_can_read_is_refused() {
	local key=$DEN_STATE/vault/key m
	put A some-value
	for m in 644 640 604 660; do
		chmod $m "$key"
		try den secret ls
		want_rc 5
		want_err_has "open to others \\(mode 0$m\\)"
	done
	chmod 600 "$key"
	den secret ls >/dev/null
	for m in '' /secrets /keys; do
		chmod 755 "$DEN_STATE/vault$m"
		try den secret ls
		want_rc 5
		want_err_has 'open to others'
		chmod 700 "$DEN_STATE/vault$m"
	done
	mv "$key" "$TMP/elsewhere"
	ln -s "$TMP/elsewhere" "$key"
	try den secret ls
	[ "$rc" != 0 ] || fail "a key behind a link was taken"
	rm "$key"
	mkfifo -m 600 "$key"
	try timeout 5 "$DEN" secret ls
	want_rc 5
	rm "$key"
	head -c 31 "$TMP/elsewhere" >"$key"
	chmod 600 "$key"
	try den secret ls
	want_rc 4
	want_err_has '32 bytes'
	if [ "$(id -u)" = 0 ]; then
		cp "$TMP/elsewhere" "$key"
		chown 1000 "$key"
		try den secret ls
		want_rc 5
		want_err_has 'belongs to user 1000'
	fi
}

test_vault_without_its_key_makes_no_other() {
	put A some-value
	rm "$DEN_STATE/vault/key"
	try den secret set B <<<some-value
	want_rc 4
	want_err_has 'bring it back'
	[ ! -e "$DEN_STATE/vault/key" ] || fail "a new key was made, and the old secrets are lost"
}

test_vault_notices_what_was_changed() {
	local d=$DEN_STATE/vault/secrets at
	put A aaaaaaaa
	put B bbbbbbbb
	cp "$d/A" keep
	for at in 0 9 12 24 50 63; do # magic, kind, nonce, times, value, tag
		cp keep "$d/A"
		printf '\125' | dd of="$d/A" bs=1 seek=$at conv=notrunc status=none
		try vault '{"op":"secret.get","names":["A"]}'
		want_rc 1
		want_out_has "secret 'A' was tampered with.*set it again"
		try vault '{"op":"secret.get","names":["B"]}'
		want_rc 0
	done
	try den secret ls
	want_rc 0
	want_out_has '^A .*damaged'
	want_out_has '^B .*sealed'
	cp "$d/B" "$d/A" # another's under this name
	try vault '{"op":"secret.get","names":["A"]}'
	want_out_has tampered
	: >"$d/A"
	try vault '{"op":"secret.get","names":["A"]}'
	want_out_has tampered
	put A healed-value
	is value "$(get A)" healed-value
	head -c 32 /dev/urandom >"$DEN_STATE/vault/key"
	try vault '{"op":"secret.get","names":["B"]}'
	want_out_has 'sealed with another key'
}

test_vault_killed_in_a_set_has_the_old_or_the_new() {
	try tool kill "$VAULT" "$DEN_STATE" 60
	want_rc 0
	want_out_has '^old [1-9][0-9]* new [1-9]'
	put A clean-value
	is files "$(ls -A "$DEN_STATE/vault/secrets")" A
}

test_vault_takes_many_at_once() {
	local i pids=() v
	# also the first: all must agree on one master key
	for i in {1..12}; do
		{ printf 'the-value-%s' "$i" | den secret set SHARED && printf 'own-value-%s' "$i" | den secret set "OWN_$i"; } &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i" || fail "one failed"
	done
	v=$(get SHARED)
	grep -Eqx 'the-value-([1-9]|1[0-2])' <<<"$v" || fail "'$v' is nobody's"
	for i in {1..12}; do
		is "own $i" "$(get "OWN_$i")" "own-value-$i"
	done
	is 'kinds of keys' "$(for i in {1..8}; do den ident jwks & done | sort -u | wc -l)" 1
}

test_vault_says_where_it_is_missing() {
	mkdir alone
	cp "$DEN" alone/den
	try alone/den secret ls
	[ ! -x /usr/local/libexec/den/den-vault ] || skip 'a den-vault is installed'
	want_rc 8
	want_err_has 'den-vault, which keeps secrets, is neither beside den nor in'
}

test_vault_is_closed_to_debuggers_and_leaves_no_core() {
	local p
	mkfifo in
	"$VAULT" "$DEN_STATE" <in >/dev/null &
	p=$!
	exec 9>in
	soon 5 grep -q '^NoNewPrivs:.*1' "/proc/$p/status" || fail "may gain rights"
	soon 5 grep -q '^CapEff:.*0000000000000000' "/proc/$p/status" || fail "has rights"
	is 'core limit' "$(awk '/^Max core/ { print $5, $6 }' "/proc/$p/limits")" '0 0'
	# not dumpable: its files in /proc are root's, and nobody reads its memory
	is 'owner of mem' "$(stat -c %u "/proc/$p/mem")" 0
	[ "$(id -u)" = 0 ] || not head -c 0 "/proc/$p/mem" 2>/dev/null
	is 'descriptors' "$(ls "/proc/$p/fd" 2>/dev/null | grep -c '^9$' || :)" 0
	exec 9>&-
	wait $p || :
}

test_vault_refuses_requests_that_make_no_sense() {
	local r
	for r in '' '{' '[]' '{}' '{"op":1}' '{"op":"nothing"}' '{"op":"secret.list","x":1}' \
		'{"op":"secret.set","name":"A"}' '{"op":"secret.set","name":"A","value":"!!"}' \
		'{"op":"secret.set","name":"A","value":"YWFhYWFhYWE=","value":"YmJiYmJiYmI="}' '{"op":"secret.set","name":"A","value":1}' \
		'{"op":"secret.get","names":[]}' '{"op":"secret.get","names":"A"}' '{"op":"secret.get","names":[1]}' \
		'{"op":"box_ca","box":"../../etc"}' "$(printf '{"op":"secret.\xff"}')"; do
		try vault "$r"
		want_rc 1
		is code "$(json error code <<<"$out")" invalid
	done
	try vault '{"op":"secret.sett","names":[]}'
	want_out_has "no operation"
	head -c 1200000 /dev/zero | tr '\0' ' ' >long
	try "$VAULT" "$DEN_STATE" <long
	want_rc 1
	is code "$(json error code <<<"$out")" limit
	try "$VAULT" "$DEN_STATE/nowhere" <<<'{"op":"secret.list"}'
	want_rc 1
	is code "$(json error code <<<"$out")" not_found
}

# ---- identity ----

test_token_is_verified_by_arithmetic_of_our_own() {
	local alg t jwks claims now
	for alg in EdDSA ES256; do
		t=$(sign $alg)
		jwks=$(den ident jwks)
		claims=$(tool verify "$jwks" "$t")
		now=$(date +%s)
		is sub "$(json sub <<<"$claims")" "box:$BOX"
		is aud "$(json aud <<<"$claims")" https://api.internal
		is iss "$(json iss <<<"$claims")" https://den.invalid
		is life $(($(json exp <<<"$claims") - $(json iat <<<"$claims"))) 600
		is nbf "$(json nbf <<<"$claims")" "$(json iat <<<"$claims")"
		at_most age $((now - $(json iat <<<"$claims"))) 5
		is den "$(json den <<<"$claims")" '{"org": "acme", "task": "t-1", "box": "'$BOX'", "template": "host-1", "policy_generation": 3, "scopes": ["read"], "parent": "b-bbbbbbbbbbbbbbbbbb"}'
		# one letter of the claims, one of the signature
		try tool verify "$jwks" "${t%%.*}.$(cut -d. -f2 <<<"$t" | tr 'ABCDEF' 'BCDEFA').${t##*.}"
		want_rc 1
		want_err_has 'signature is wrong'
		try tool verify "$jwks" "$(/usr/bin/python3 -c 'import sys
t = sys.argv[1]
print(t[:-40] + ("A" if t[-40] != "A" else "B") + t[-39:])' "$t")"
		want_rc 1
		want_err_has 'signature is wrong|not a point'
	done
	is 'every token has a name of its own' "$(for alg in 1 2 3; do tool verify "$jwks" "$(sign ES256)" | json jti; done | sort -u | wc -l)" 3
}

test_token_is_verified_by_openssl_and_node() {
	local alg t kid
	command -v openssl >/dev/null || skip 'no openssl'
	for alg in EdDSA ES256; do
		t=$(sign $alg)
		kid=$(kid_of "$t")
		den ident jwks >jwks.json
		tool pem "$(cat jwks.json)" "$kid" >key.pem
		tool raw "$t" input sig
		if [ $alg = EdDSA ]; then
			openssl pkeyutl -verify -rawin -pubin -inkey key.pem -in input -sigfile sig >/dev/null
			echo x >>input
			not openssl pkeyutl -verify -rawin -pubin -inkey key.pem -in input -sigfile sig >/dev/null
		else
			openssl dgst -sha256 -verify key.pem -signature sig input >/dev/null
			echo x >>input
			not openssl dgst -sha256 -verify key.pem -signature sig input >/dev/null
		fi
		command -v node >/dev/null || continue
		node -e '
const c = require("crypto"), [t, alg] = process.argv.slice(1), [h, b, s] = t.split(".");
const kid = JSON.parse(Buffer.from(h, "base64url")).kid;
const jwk = JSON.parse(require("fs").readFileSync("jwks.json")).keys.find(k => k.kid === kid);
const key = { key: c.createPublicKey({ key: jwk, format: "jwk" }), dsaEncoding: "ieee-p1363" };
const ok = m => c.verify(alg === "EdDSA" ? null : "sha256", Buffer.from(m), key, Buffer.from(s, "base64url"));
process.exit(ok(h + "." + b) && !ok(h + "." + b + "x") ? 0 : 1);' "$t" $alg
	done
}

test_ident_rotation_keeps_what_is_needed_to_verify() {
	local before after old new alg
	before=$(den ident jwks)
	is keys "$(json keys <<<"$before" | grep -o '"kid"' | wc -l)" 2
	is 'the same again' "$(den ident jwks)" "$before"
	for alg in EdDSA ES256; do
		old=$(sign $alg)
		den ident rotate --alg $alg >rotated
		is 'one was made' "$(json made 0 alg <rotated)" $alg
		after=$(den ident jwks)
		new=$(sign $alg)
		tool verify "$after" "$old" >/dev/null
		tool verify "$after" "$new" >/dev/null
		try tool verify "$before" "$new"
		want_rc 1
		want_err_has '0 keys'
		[ "${old%%.*}" != "${new%%.*}" ] || fail "the old key signs"
	done
	is keys "$(json keys <<<"$after" | grep -o '"kid"' | wc -l)" 4
	# those that sign come first, for verifiers that look no further
	is 'keys that sign' "$(for alg in 0 1; do json keys $alg kid <<<"$after"; done | sort | tr '\n' ' ')" \
		"$(for alg in EdDSA ES256; do kid_of "$(sign $alg)"; done | sort | tr '\n' ' ')"
	try den ident rotate --alg RS256
	want_rc 2
	want_err_has 'EdDSA and ES256'
}

test_ident_documents_fit_together() {
	is 'issuer at first' "$(den ident issuer)" https://den.invalid
	is issuer "$(den ident issuer https://id.example.com/den)" https://id.example.com/den
	try den ident issuer http://id.example.com
	want_rc 2
	want_err_has 'no issuer'
	den ident openid >doc
	is issuer "$(json issuer <doc)" https://id.example.com/den
	is jwks "$(json jwks_uri <doc)" https://id.example.com/den/.well-known/jwks.json
	is algorithms "$(json id_token_signing_alg_values_supported <doc)" '["EdDSA", "ES256"]'
	is 'of a token' "$(tool verify "$(den ident jwks)" "$(sign ES256)" | json iss)" https://id.example.com/den
	is 'for another' "$(den ident openid --issuer https://x.example | json issuer)" https://x.example
}

test_token_needs_a_grant() {
	local id
	DEN_STATE=$COMMON_STATE
	id=$(box)
	try den token "$id" --audience https://api.internal
	want_rc 5
	want_err_has 'grants no token'
	try den token "$id"
	want_rc 2
	want_err_has audience
	try den token nobox --audience x
	want_rc 3
}

test_token_says_which_box_it_is_also_of_a_fork() {
	local id fork alg t claims
	[ -x "${DEN%/*}/den-gate" ] || fail "den-gate is not beside den"
	DEN_STATE=$COMMON_STATE
	printf '{"version": 1, "identity": {"org": "acme", "scopes": ["read"], "audiences": ["https://a.example"]}}' >p.json
	id=$(den create --policy ./p.json)
	fork=$(den fork "$id")
	for alg in EdDSA ES256; do
		t=$(den token "$id" --audience https://a.example --alg $alg)
		claims=$(tool verify "$(den ident jwks)" "$t")
		is sub "$(json sub <<<"$claims")" "box:$id"
		is box "$(json den box <<<"$claims")" "$id"
		is org "$(json den org <<<"$claims")" acme
		is scopes "$(json den scopes <<<"$claims")" '["read"]'
		claims=$(tool verify "$(den ident jwks)" "$(den token "$fork" --audience https://a.example --alg $alg)")
		is sub "$(json sub <<<"$claims")" "box:$fork"
		is parent "$(json den parent <<<"$claims")" "$id"
	done
	try den token "$id" --audience https://b.example
	want_rc 5
	want_err_has "grants no token for 'https://b.example'"
	try den token "$id" --audience https://a.example --alg RS256
	want_rc 2
}

# ---- the authority of a box ----

test_box_authority_signs_for_its_box_and_stays_the_same() {
	command -v openssl >/dev/null || skip 'no openssl'
	vault "{\"op\":\"box_ca\",\"box\":\"$BOX\",\"not_before\":1750000000}" >ca.json
	is 'again' "$(vault "{\"op\":\"box_ca\",\"box\":\"$BOX\",\"not_before\":1750000000}")" "$(cat ca.json)"
	json ok cert <ca.json >ca.pem
	json ok key <ca.json >ca.key
	openssl x509 -in ca.pem -noout -text >text
	grep -q 'Subject: CN = den box b-aaaaaaaaaaaaaaaaaa' text
	grep -q 'CA:TRUE, pathlen:0' text
	grep -A1 'Key Usage: critical' text | grep -q 'Certificate Sign$'
	grep -q 'Not Before: Jun 15 15:06:40 2025 GMT' text
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout leaf.key -subj /CN=x -out leaf.csr 2>/dev/null
	printf 'subjectAltName=DNS:api.example.com\n' >ext
	openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 7 -extfile ext -out leaf.pem 2>/dev/null
	openssl verify -CAfile ca.pem -verify_hostname api.example.com leaf.pem >/dev/null
	vault '{"op":"box_ca","box":"b-bbbbbbbbbbbbbbbbbb"}' | json ok cert >other.pem
	not openssl verify -CAfile other.pem leaf.pem >/dev/null 2>&1
	! grep -rqaF -- "$(sed -n 2p ca.key)" "$DEN_STATE" || fail "its key is on disk"
}
