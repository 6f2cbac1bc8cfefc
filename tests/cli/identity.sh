# Who a box is, to others: tokens that it asks for, that the host asks for, that the gate adds by itself.
source "$TESTS/gate/secrets_kit.sh"

json() {
	/usr/bin/python3 -c 'import json, sys
v = json.load(sys.stdin)
for k in sys.argv[1:]: v = v[int(k) if k.isdigit() else k]
print(v if isinstance(v, str) else json.dumps(v))' "$@"
}

# claims TOKEN: after its signature was verified with the published keys
claims() {
	/usr/bin/python3 "$TESTS/programs/vault.py" verify "$(den ident jwks)" "$1"
}

POLICY='"identity": {"org": "acme", "task": "t-7", "scopes": ["read", "deploy"], "audiences": ["https://api.internal", "urn:x:y"]}'

# token BOX AUDIENCE [MORE]: as a program in the box gets it
token() {
	inside "$1" curl -sS --unix-socket /run/den/identity.sock "http://den/token?audience=$2"
}

test_box_gets_tokens_for_granted_audiences() {
	local b alg c
	echo "{\"version\": 1, $POLICY}" >p.json
	b=$(den create --policy ./p.json)
	for alg in EdDSA ES256; do
		token "$b" "https%3A%2F%2Fapi.internal&alg=$alg"
		want_rc 0
		c=$(claims "$out")
		is alg "$(cut -d. -f1 <<<"$out" | /usr/bin/python3 -c 'import base64, json, sys
print(json.loads(base64.urlsafe_b64decode(sys.stdin.read().strip() + "=="))["alg"])')" $alg
		is aud "$(json aud <<<"$c")" https://api.internal
		is sub "$(json sub <<<"$c")" "box:$b"
		is box "$(json den box <<<"$c")" "$b"
		is org "$(json den org <<<"$c")" acme
		is task "$(json den task <<<"$c")" t-7
		is scopes "$(json den scopes <<<"$c")" '["read", "deploy"]'
		is generation "$(json den policy_generation <<<"$c")" 1
		[ -n "$(json den template <<<"$c")" ] || fail 'no template'
		not grep -q '"parent"' <<<"$c" || fail 'a parent of a box that is no fork'
		at_most life $(($(json exp <<<"$c") - $(json iat <<<"$c"))) 3600
	done
	# any user of the box; the slashes as they are
	if [ "$VARIANT" != user ]; then # that one has no other
		try timeout 20 "$DEN" exec -u 1234 "$b" -- curl -sS --unix-socket /run/den/identity.sock 'http://den/token?audience=urn:x:y'
		want_rc 0
		is aud "$(claims "$out" | json aud)" urn:x:y
	fi
	token "$b" https://api.internal
	is aud "$(claims "$out" | json aud)" https://api.internal
	# the host may ask too, and a new policy is a new generation
	is sub "$(claims "$(den token "$b" --audience urn:x:y --alg ES256)" | json sub)" "box:$b"
	den policy set "$b" --audience urn:new
	token "$b" urn:new
	is generation "$(claims "$out" | json den policy_generation)" 2
}

test_token_that_is_not_granted_is_refused_and_taught() {
	local b t
	echo "{\"version\": 1, $POLICY}" >p.json
	b=$(den create --policy ./p.json --name who)
	inside "$b" curl -sS -i --unix-socket /run/den/identity.sock 'http://den/token?audience=https://other.internal'
	want_out_has '^HTTP/1.1 403'
	want_out_has "grants no token for 'https://other.internal'"
	want_out_has 'audience'
	for t in '/token' '/token?audience=' '/token?audience=%zz' '/token?audience=a%0ab' '/token?audience=urn:x:y&alg=none' \
		'/token?audience=urn:x:y&alg=HS256' '/' '/keys'; do
		inside "$b" curl -sS -i --unix-socket /run/den/identity.sock "http://den$t"
		want_out_has '^HTTP/1.1 40[04]'
		want_out_has 'GET /token\?audience='
	done
	inside "$b" curl -sS -i -X POST --unix-socket /run/den/identity.sock 'http://den/token?audience=urn:x:y'
	want_out_has '^HTTP/1.1 405'
	# a box without an identity has no socket
	b=$(den create)
	inside "$b" test -e /run/den/identity.sock
	want_rc 1
}

test_many_who_ask_for_tokens_at_once_all_get_one() {
	local b
	echo "{\"version\": 1, $POLICY}" >p.json
	b=$(den create --policy ./p.json)
	inside "$b" sh -c 'for i in $(seq 12); do curl -sS --unix-socket /run/den/identity.sock "http://den/token?audience=urn:x:y" >/tmp/t$i & done
		wait; cat /tmp/t* | grep -o "eyJ[^.]*\.eyJ[^.]*\.[A-Za-z0-9_-]*" | sort -u | wc -l'
	want_out_has '^(1[0-2]|[1-9])$'
	at_least tokens "$out" 1
	# who says half a word and waits keeps nobody else from one
	inside "$b" sh -c 'for i in $(seq 20); do { printf "GET /tok"; sleep 8; } | nc -U /run/den/identity.sock >/dev/null & done
		sleep 0.3; curl -sS -m 5 --unix-socket /run/den/identity.sock "http://den/token?audience=urn:x:y"; kill $(jobs -p)'
	want_out_has '^eyJ'
}

test_fork_is_somebody_else() {
	local b f c
	echo "{\"version\": 1, $POLICY}" >p.json
	b=$(den create --policy ./p.json)
	f=$(den fork "$b")
	token "$f" urn:x:y
	c=$(claims "$out")
	is sub "$(json sub <<<"$c")" "box:$f"
	is parent "$(json den parent <<<"$c")" "$b"
	token "$b" urn:x:y
	c=$(claims "$out")
	is sub "$(json sub <<<"$c")" "box:$b"
	not grep -q "$f" <<<"$c" || fail "the origin's token tells of the fork"
}

#@ root user range net
test_gate_adds_the_token_by_itself() {
	local b t c
	secrets_up
	cat >p.json <<-END
		{"version": 1, "resolver": ["127.0.0.1"], "allow": ["a.test:9080"],
		 "identity": {"org": "acme", "scopes": ["read"], "add": [{"host": "a.test", "port": 9443, "audience": "https://a.test"},
		  {"host": "b.test", "port": 9443, "audience": "https://b.test", "header": "x-token"}]}}
	END
	b=$(secret_box)
	inside "$b" curl -sS https://a.test:9443/one
	want_out served
	t=$(grep -Eo '/one .*authorization: Bearer [^ ]+' "$KIT/seen" | sed 's/.* //')
	c=$(claims "$t")
	is aud "$(json aud <<<"$c")" https://a.test
	is box "$(json den box <<<"$c")" "$b"
	# what the box says there itself is dropped
	inside "$b" curl -sS https://a.test:9443/two -H 'Authorization: Bearer mine'
	want_seen '/two .*authorization: Bearer eyJ'
	want_unseen '/two .*mine'
	inside "$b" curl -sS https://b.test:9443/three -H 'Authorization: Bearer mine'
	want_seen '/three .*authorization: Bearer mine'
	is aud "$(claims "$(grep -Eo '/three .*x-token: [^ ]+' "$KIT/seen" | sed 's/.* //')" | json aud)" https://b.test
	# a server that tells what it was sent tells the box no token
	for t in echo chunked; do
		inside "$b" curl -sS --compressed "https://a.test:9443/$t"
		want_out_has 'authorization: Bearer den-token-withheld'
		want_seen "/$t .*authorization: Bearer eyJ"
		c=$(grep -Eo "/$t .*authorization: Bearer [^ ]+" "$KIT/seen" | sed 's/.*\.//')
		want_clean "$c"
	done
	inside "$b" curl -sS https://a.test:9443/gzip
	want_out_has 'compressed an answer'
	# many requests of one connection; another port gets none
	inside "$b" curl -sS https://a.test:9443/k1 https://a.test:9443/k2 https://a.test:9443/k3
	is 'with token' "$(grep -Ec '/k[123] .*authorization: Bearer eyJ' "$KIT/seen")" 3
	inside "$b" curl -sS http://a.test:9080/plain
	want_unseen '/plain .*eyJ'
	# the box itself may not ask for it: it was granted to the gate
	den policy set "$b" --audience urn:own
	token "$b" urn:own
	want_out_has '^eyJ'
	token "$b" https://a.test
	want_out_has "grants no token for 'https://a.test'"
	inside "$b" curl -sS https://a.test:9443/four
	want_seen '/four .*authorization: Bearer eyJ'
	try den token "$b" --audience https://a.test
	want_rc 5
}
