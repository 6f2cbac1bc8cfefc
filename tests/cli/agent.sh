# A day in the life: an agent's own program in a box, its model reached with a key that it never sees, and
# packages from the registries, and nothing else. The clients of the registries are the only ones in this
# suite that leave the machine; where they cannot, the test is skipped and says so.
source "$TESTS/gate/secrets_kit.sh"

# no_registry LOG: is that why it failed?
# Nobody answers, or one who is not trusted in a box: a company's own gate, say.
no_registry() {
	grep -Eqi 'SELF_SIGNED_CERT|EAI_AGAIN|ENOTFOUND|ETIMEDOUT|ECONNREFUSED|ECONNRESET|network|Could not resolve|Temporary failure|Unable to connect|Cannot initiate' "$1"
}

#@ root timeout=240
test_agent_works_with_a_key_that_it_never_sees() {
	local b value port m
	command -v npm >/dev/null || skip 'no npm on this machine'
	mkdir -p "$KIT/share"
	cert authority ca.all '' -days 3 -addext 'keyUsage=critical,keyCertSign'
	openssl x509 -in "$KIT/ca.all" -out "$KIT/share/ca.pem"
	cert host.den leaf.pem ca.all -days 2 -addext 'basicConstraints=critical,CA:FALSE' -addext 'subjectAltName=DNS:host.den'
	value=sk-ant-$(random)
	/usr/bin/python3 "$TESTS/gate/model_api.py" "$KIT" "$KIT/leaf.pem" "$value" &
	soon 10 test -e "$KIT/port"
	port=$(cat "$KIT/port")
	printf %s "$value" | den secret set MODEL_KEY >/dev/null
	b=$(den create --preset registries --trust "$KIT/share/ca.pem" --mount "$TESTS/gate:/gate:ro" --mount "$KIT/share:/share:ro" \
		--secret "MODEL_KEY@host:$port:header=x-api-key,bearer,env=ANTHROPIC_API_KEY" \
		-e "ANTHROPIC_BASE_URL=https://host.den:$port" -e DISABLE_TELEMETRY=1 -e CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1)
	if ! timeout 120 "$DEN" exec "$b" -- sh -c 'mkdir /opt/agent && cd /opt/agent && npm install --loglevel=error --no-progress --no-fund --no-audit @anthropic-ai/claude-code' >log 2>&1; then
		cat log
		no_registry log && skip 'npm cannot fetch the agent here'
		fail 'npm could not install the agent'
	fi
	m=$(mark_of "$b" ANTHROPIC_API_KEY)
	try timeout 60 "$DEN" exec "$b" -- /opt/agent/node_modules/.bin/claude -p 'say a word' </dev/null
	want_rc 0
	want_out_has 'the model speaks'
	want_clean "$value"
	grep -q '^POST /v1/messages right' "$KIT/requests"
	not grep -E 'wrong|none$' <(grep messages "$KIT/requests")
	# while it runs and after: in no memory, environment, file
	den exec "$b" -- sh -c '/opt/agent/node_modules/.bin/claude -p "say a word" --output-format stream-json --verbose; sleep 60' </dev/null >said 2>&1 &
	soon 60 grep -q 'the model speaks' said
	nowhere_inside "$b" "$value"
	nowhere_outside "$value"
	not grep -q "$value" said
	# it went there as a placeholder would not have: the server lets nobody else in
	inside "$b" curl -sS "https://host.den:$port/v1/messages" -H 'x-api-key: other' -d '{}'
	want_out_has 'wrong key other'
	inside "$b" curl -sS "https://host.den:$port/v1/messages" -H "x-other: $m" -d '{}'
	want_out_has 'den: refused'
	want_incident "$b" 'MODEL_KEY in header x-other'
}

#@ root timeout=180
test_packages_come_from_the_registries_and_nothing_else_does() {
	local b
	[ -x /usr/bin/apt-get ] || skip 'no apt-get on this machine'
	command -v npm >/dev/null || skip 'no npm on this machine'
	b=$(den create --preset registries)
	# the system's own list; what others added to it may be anywhere
	if ! timeout 100 "$DEN" exec "$b" -- sh -c 'rm -f /etc/apt/apt.conf.d/*proxy*
		if [ -s /etc/apt/sources.list ] || [ -e /etc/apt/sources.list.d/debian.sources ] || [ -e /etc/apt/sources.list.d/ubuntu.sources ]; then
			for f in /etc/apt/sources.list.d/*; do case $f in */debian.sources | */ubuntu.sources) ;; *) rm -f "$f" ;; esac; done
		fi
		apt-get update && { apt-get install -y --no-install-recommends hello || apt-get install -y --reinstall --no-install-recommends hello; }' >log 2>&1; then
		tail -n 20 log
		no_registry log && skip 'apt-get cannot reach its mirror here'
		fail 'apt-get failed'
	fi
	inside "$b" hello
	want_out 'Hello, world!'
	if ! timeout 120 "$DEN" exec "$b" -- sh -c 'mkdir -p /tmp/p && cd /tmp/p && npm install --loglevel=error --no-progress --no-fund --no-audit is-number' >log 2>&1; then
		tail -n 20 log
		no_registry log && skip 'npm cannot reach its registry here'
		fail 'npm failed'
	fi
	inside "$b" sh -c 'cd /tmp/p && node -e "process.stdout.write(String(require(\"is-number\")(7)))"'
	want_out true
	journal "$b" | grep -q '"kind":"connection"' || fail 'the journal has no connection'
	# and nothing else: by name, by address, by another port of a registry
	inside "$b" curl -sS -m 5 https://example.com/
	want_rc 6
	inside "$b" curl -sS -m 5 https://192.0.2.1/
	want_rc 7
	inside "$b" git ls-remote https://github.com/git/git
	not test "$rc" = 0
	want_denial "$b" 'example.com'
	den denials "$b" | grep -q example.com
}
