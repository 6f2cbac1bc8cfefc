# Secrets: the box has a placeholder, the granted host gets the value in the granted place, and the value is
# nowhere else. Programs inside know nothing of it.
source "$TESTS/gate/secrets_kit.sh"

# ask BOX SHELL-COMMAND: $KEY is the placeholder in it
ask() {
	inside "$1" sh -c "$2"
}

# ---- TLS ends at the gate ------------------------------------------------------------------------

#@ root user range net timeout=90
test_programs_trust_the_gate_without_options() {
	local b
	secrets_up
	mkdir -p "$KIT/git"
	git init -q work
	git -C work -c user.name=x -c user.email=x@x commit -q --allow-empty -m first
	git clone -q --bare work "$KIT/git/x.git"
	git -C "$KIT/git/x.git" update-server-info
	b=$(secret_box --secret KEY@a.test:9443:header=x-api-key,basic,bearer)
	ask "$b" 'curl -sS https://a.test:9443/curl -H "x-api-key: $KEY"'
	want_out served
	ask "$b" "/usr/bin/python3 -c 'import os, urllib.request as u
print(u.urlopen(u.Request(\"https://a.test:9443/urllib\", headers={\"X-Api-Key\": os.environ[\"KEY\"]})).read().decode())'"
	want_out_has '^served'
	ask "$b" 'printf "GET /openssl HTTP/1.1\r\nHost: a.test:9443\r\nX-Api-Key: $KEY\r\nConnection: close\r\n\r\n" |
		openssl s_client -quiet -verify_return_error -connect a.test:9443 -servername a.test 2>/dev/null'
	want_out_has '^served'
	ask "$b" 'git clone -q "https://user:$KEY@a.test:9443/git/x.git" /tmp/x && git -C /tmp/x log --format=%s'
	want_out first
	want_seen '/git/x.git.* \| authorization: Basic '"$(printf 'user:%s' "$VALUE" | base64 -w0)"
	if den exec "$b" -- sh -c 'command -v node' >/dev/null; then
		ask "$b" "node -e 'fetch(\"https://a.test:9443/node\", {headers: {\"x-api-key\": process.env.KEY}}).then(r => r.text()).then(t => process.stdout.write(t))'"
		want_out served
		want_seen "^9443 GET /node .*x-api-key: $VALUE "
	fi
	if den exec "$b" -- /usr/bin/python3 -c 'import requests' 2>/dev/null; then
		ask "$b" "/usr/bin/python3 -c 'import os, requests
print(requests.get(\"https://a.test:9443/requests\", headers={\"x-api-key\": os.environ[\"KEY\"]}).text)'"
		want_out_has '^served'
		want_seen "^9443 GET /requests .*x-api-key: $VALUE "
	fi
	# with the variables gone the system's bundle is enough
	ask "$b" 'env -i PATH="$PATH" KEY="$KEY" curl -sS https://a.test:9443/bundle -H "x-api-key: $KEY"'
	want_out served
	local t
	for t in curl urllib openssl bundle; do
		want_seen "^9443 GET /$t .*x-api-key: $VALUE "
	done
	ask "$b" 'openssl s_client -connect a.test:9443 -servername a.test </dev/null 2>/dev/null | openssl x509 -noout -issuer'
	want_out_has "den box $b"
	nowhere_outside "$VALUE"
}

#@ root user net
test_secret_goes_into_every_place_that_is_granted() {
	local b e
	secrets_up
	b=$(secret_box --secret KEY@a.test:9443:header=x-api-key,header=x-second,bearer,basic,query=key,body)
	ask "$b" 'curl -sS https://a.test:9443/t1 -H "X-API-Key: $KEY" -H "x-second: a $KEY b"'
	want_seen "/t1 .*x-api-key: $VALUE \| x-second: a $VALUE b "
	ask "$b" 'curl -sS https://a.test:9443/t2 -H "Authorization: Bearer $KEY"'
	want_seen "/t2 .*authorization: Bearer $VALUE "
	ask "$b" 'curl -sS -u "me:$KEY" https://a.test:9443/t3; curl -sS -u "$KEY:" https://a.test:9443/t4'
	want_seen "/t3 .*authorization: Basic $(printf %s "me:$VALUE" | base64 -w0) "
	want_seen "/t4 .*authorization: Basic $(printf %s "$VALUE:" | base64 -w0) "
	ask "$b" 'curl -sS "https://a.test:9443/t5?a=1&key=$KEY&b=2"'
	want_seen "/t5\?a=1&key=$VALUE&b=2 "
	# JSON, a form, pieces of unknown length, and more than is held to count it
	ask "$b" 'curl -sS https://a.test:9443/t6 -H "Content-Type: application/json" -d "{\"k\":\"$KEY\",\"l\":\"$KEY\"}"'
	want_seen "/t6 .*body \{\"k\":\"$VALUE\",\"l\":\"$VALUE\"\}"
	ask "$b" 'curl -sS https://a.test:9443/t7 --data-urlencode "k=$KEY" -d x=1'
	want_seen "/t7 .*body k=$VALUE&x=1"
	ask "$b" 'printf "x%sy" "$KEY" | curl -sS -H "Transfer-Encoding: chunked" -H "Content-Type: text/plain" --data-binary @- https://a.test:9443/t8'
	want_seen "/t8 .*body x${VALUE}y"
	ask "$b" '{ head -c 200000 /dev/zero | tr "\0" x; printf "%s" "$KEY"; head -c 200000 /dev/zero | tr "\0" y; } >/tmp/big
		curl -sS -H "Content-Type: text/plain" --data-binary @/tmp/big https://a.test:9443/t9'
	want_out served
	want_seen "/t9 .*x${VALUE}y"
	is 'bytes on their way' "$(grep -E '/t9 ' "$KIT/seen" | sed 's/.*body //' | tr -d '\n' | wc -c)" $((400000 + ${#VALUE}))
	# a value with letters that mean something: written as each place wants it
	printf 'a"b\\c&d=e %%f+g' | den secret rotate KEY >/dev/null
	ask "$b" 'curl -sS "https://a.test:9443/u1?key=$KEY"; curl -sS https://a.test:9443/u2 -H "Content-Type: application/json" -d "{\"k\":\"$KEY\"}";
		curl -sS https://a.test:9443/u3 -d "k=$KEY&x=1"'
	/usr/bin/python3 - "$KIT/seen" <<-'END'
		import ast, json, sys, urllib.parse
		want, got = 'a"b\\c&d=e %f+g', {}
		for line in open(sys.argv[1]):
		    if "/u" in line.split("|")[0]:
		        got[line.split(" ")[2][:3]] = line
		body = lambda l: ast.literal_eval("'''" + l.rsplit("| body ", 1)[1].rstrip("\n") + " '''").rstrip(" ")
		assert urllib.parse.parse_qs(got["/u1"].split(" ")[2].split("?")[1])["key"] == [want], got["/u1"]
		assert json.loads(body(got["/u2"]))["k"] == want, got["/u2"]
		form = urllib.parse.parse_qs(body(got["/u3"]))
		assert form == {"k": [want], "x": ["1"]}, got["/u3"]
	END
	is incidents "$(den incidents --json "$b" | grep -c '"kind"' || :)" 0
	e=$(journal "$b")
	grep -q '"kind":"secret"' <<<"$e" || fail "its use is not in the journal: $e"
}

#@ root user net
test_sigv4_requests_are_signed_anew() {
	local b
	secrets_up
	echo "$VALUE AKIAEXAMPLE" >"$KIT/aws"
	b=$(secret_box --secret KEY@a.test:9443:sigv4=AKIAEXAMPLE)
	ask "$b" 'test "$AWS_ACCESS_KEY_ID" = AKIAEXAMPLE && printf %s "$AWS_SECRET_ACCESS_KEY"'
	want_rc 0
	want_out_has '^den_'
	# curl signs with what it has, a placeholder
	local sign='curl -sS --aws-sigv4 "aws:amz:eu-west-1:SERVICE" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"'
	ask "$b" "${sign/SERVICE/execute-api} 'https://a.test:9443/sigv4?b=2&a=1'"
	want_out right
	ask "$b" "${sign/SERVICE/execute-api} -d 'a body' https://a.test:9443/sigv4/put"
	want_out right
	ask "$b" "${sign/SERVICE/s3} https://a.test:9443/sigv4/some%20key"
	want_out right
	ask "$b" "head -c 300000 /dev/zero | tr '\\0' x >/tmp/big; ${sign/SERVICE/execute-api} --data-binary @/tmp/big https://a.test:9443/sigv4/big"
	want_out right
	# not signed at all: nothing is made up
	ask "$b" 'curl -sS https://a.test:9443/sigv4'
	want_out_has 'not signed|den: '
	# another id, and the placeholder itself
	ask "$b" 'curl -sS --aws-sigv4 aws:amz:r:s --user "AKIAOTHER:$AWS_SECRET_ACCESS_KEY" https://a.test:9443/sigv4/other'
	[ "$out" != right ] || fail 'signed for another id'
	ask "$b" 'curl -sS -H "x-key: $AWS_SECRET_ACCESS_KEY" https://a.test:9443/sigv4/clear'
	want_out_has 'den: refused'
	want_unseen "$VALUE|den_"
}

#@ root user net
test_server_that_cannot_prove_its_name_gets_nothing() {
	local b p
	secrets_up
	b=$(secret_box --secret KEY@a.test:9444:header=x-api-key --secret KEY@a.test:9445:header=x-api-key \
		--secret KEY@a.test:9446:header=x-api-key)
	for p in 9444:self.signed 9445:ostname.mismatch 9446:expired; do
		ask "$b" "curl -sS -i https://a.test:${p%:*}/x -H \"x-api-key: \$KEY\""
		want_out_has '^HTTP/1.1 502'
		want_out_has "${p#*:}"
	done
	# without --trust the authority is a stranger's too
	b=$(net_box --secret KEY@a.test:9443:header=x-api-key)
	ask "$b" 'curl -sS -i https://a.test:9443/x -H "x-api-key: $KEY"'
	want_out_has '^HTTP/1.1 502'
	want_out_has 'unable to get local issuer|self.signed'
	# and in clear it goes nowhere
	b=$(secret_box --secret KEY@a.test:9080:header=x-api-key)
	ask "$b" 'curl -sS -i http://a.test:9080/x -H "x-api-key: $KEY"'
	want_out_has '^HTTP/1.1 403'
	want_out_has 'in TLS only'
	want_unseen .
}

#@ root user net
test_trust_is_for_the_box_alone_and_needs_no_secret() {
	local b c
	secrets_up
	b=$(secret_box --allow a.test:9443)
	inside "$b" curl -sS https://a.test:9443/x
	want_out served
	inside "$b" env -i PATH=/usr/bin:/bin curl -sS https://a.test:9443/x
	want_out served
	c=$(net_box --allow a.test:9443)
	inside "$c" curl -sS https://a.test:9443/x
	want_rc 60
	den policy set "$c" --trust "$KIT/share/ca.pem"
	inside "$c" curl -sS https://a.test:9443/x
	want_out served
	# what is no certificate is refused, and nothing is started
	cp "$KIT/leaf.pem" key.pem
	try den create --trust key.pem
	want_rc 2
	want_err_has "key.pem.*private key"
	echo hello >no.pem
	try den create --trust no.pem
	want_rc 2
	want_err_has 'no certificate in it'
	try den create --trust /nowhere
	want_rc 3
	is boxes "$(boxes | wc -l)" 2
}

# ---- what comes back -----------------------------------------------------------------------------

#@ root user net
test_value_that_comes_back_becomes_the_placeholder() {
	local b m t
	secrets_up
	b=$(secret_box --secret KEY@a.test:9443:header=x-api-key,body)
	m=$(mark_of "$b")
	for t in echo chunked close; do
		ask "$b" "curl -sS -i https://a.test:9443/$t -H \"x-api-key: \$KEY\" -d \"a=\$KEY\""
		want_rc 0
		want_out_has "x-api-key: $m .*body a=$m"
		want_clean
		want_seen "/$t .*x-api-key: $VALUE .*body a=$VALUE"
	done
	ask "$b" 'curl -sS -i https://a.test:9443/head -H "x-api-key: $KEY"'
	want_out_has "^X-Your-Key: $m"
	want_clean
	ask "$b" 'curl -sS -i -I https://a.test:9443/head -H "x-api-key: $KEY"'
	want_clean
	# nobody can look into what is compressed: it is not asked for, and refused if it comes
	ask "$b" 'curl -sS -i --compressed https://a.test:9443/echo -H "x-api-key: $KEY"'
	want_out_has "accept-encoding: identity.*"
	want_clean
	ask "$b" 'curl -sS -i https://a.test:9443/gzip -H "x-api-key: $KEY" | tr -d "\0"'
	want_out_has '^HTTP/1.1 502'
	want_out_has 'compress|encod'
}

#@ root user net
test_events_are_streamed_without_delay() {
	local b m
	secrets_up
	b=$(keyed)
	m=$(mark_of "$b")
	den exec "$b" -- sh -c 'curl -sSN https://a.test:9443/sse -H "x-api-key: $KEY"' >events &
	soon 5 grep -q "^data: first $m" events || fail "the first event waits: $(cat events)"
	want_unseen '^second event'
	touch "$KIT/go"
	wait $!
	is events "$(grep -c '^data:' events)" 2
	grep -q '^data: second' events
	not grep -q "$VALUE" events
}

#@ root user net
test_redirection_elsewhere_gets_no_secret() {
	local b
	secrets_up
	b=$(keyed --allow b.test:9443 --allow b.test:9080)
	ask "$b" 'curl -sS -iL -H "x-api-key: $KEY" https://a.test:9443/to/http://b.test:9080/x'
	want_out_has '^HTTP/1.1 403'
	want_incident "$b" 'b.test:9080 .*KEY in header x-api-key'
	# the same with TLS of its own: out of the gate's sight, and only a placeholder
	ask "$b" 'curl -sS -L -H "x-api-key: $KEY" https://a.test:9443/to/https://b.test:9443/y'
	want_seen "^9443 GET /y .*x-api-key: $(mark_of "$b") "
	want_unseen "GET /[xy] .*$VALUE|^9080"
	# another port of the same name is another place
	b=$(keyed --allow a.test:9080)
	ask "$b" 'curl -sS -i -H "x-api-key: $KEY" http://a.test:9080/z'
	want_out_has '^HTTP/1.1 403'
	want_unseen '^9080'
}

#@ root user net
test_websocket_passes_after_the_upgrade() {
	local b m
	secrets_up
	b=$(keyed)
	m=$(mark_of "$b")
	cat >"$KIT/share/ws.py" <<-'END'
		import os, socket, ssl, sys
		s = ssl.create_default_context().wrap_socket(socket.create_connection(("a.test", 9443)), server_hostname="a.test")
		s.settimeout(5)
		s.sendall(("GET /ws HTTP/1.1\r\nHost: a.test:9443\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nx-api-key: %s\r\n\r\n" % os.environ["KEY"]).encode())
		head = b""
		while b"\r\n\r\n" not in head: head += s.recv(1000)
		print(head.split(b"\r\n")[0].decode())
		mask = lambda t: bytes([0x81, 0x80 | len(t), 1, 2, 3, 4]) + bytes(c ^ (i % 4 + 1) for i, c in enumerate(t))
		for text in sys.argv[1:]:
		    try:
		        s.sendall(mask(text.encode()))
		        data = b""
		        while len(data) < len(text) + 11:
		            more = s.recv(1000)
		            if not more: raise OSError
		            data += more
		        print("got", bytes(c ^ (i % 4 + 1) for i, c in enumerate(data[11:])).decode())
		    except OSError:
		        print("cut")
	END
	ask "$b" '/usr/bin/python3 /share/ws.py hello again'
	want_out "$(printf 'HTTP/1.1 101 Switching Protocols\ngot hello\ngot again')"
	want_seen "GET /ws .*x-api-key: $VALUE "
	: >"$KIT/seen"
	ask "$b" '/usr/bin/python3 /share/ws.py hello "to $KEY"'
	want_out_has '^got hello'
	want_out_has '^cut'
	want_incident "$b" 'KEY in upgraded connection'
	is 'messages that came' "$(grep -c '^9443 raw' "$KIT/seen")" 1
}

# ---- a placeholder elsewhere ---------------------------------------------------------------------

#@ root user range net
test_placeholder_elsewhere_is_blocked_and_is_an_incident() {
	local b m n=0 t
	secrets_up
	b=$(keyed --allow b.test:9080 --allow a.test:9080 --secret KEY@b.test:9443:bearer,env=OTHER)
	m=$(mark_of "$b")
	[ "$m" != "$(mark_of "$b" OTHER)" ] || fail 'one placeholder for two grants'
	: >"$KIT/seen"
	while read -r t <&3; do
		n=$((n + 1))
		ask "$b" "curl -sS -i $t"
		want_out_has '^HTTP/1.1 403' || fail "$t"
		want_out_has 'placeholder'
		soon 3 test "$(den incidents --json "$b" | grep -o '"at' | wc -l)" -ge $n || fail "no incident of: $t"
	done 3<<-'END'
		http://b.test:9080/ -H "x-api-key: $KEY"
		"http://b.test:9080/?q=$KEY"
		"http://b.test:9080/$KEY/x"
		http://b.test:9080/ -d "$KEY"
		http://b.test:9080/ -u "me:$KEY"
		http://b.test:9080/ -H "x: $(printf %s "$KEY" | base64 -w0)"
		http://b.test:9080/ -H "x: $(printf abc:%s "$KEY" | base64 -w0)"
		http://b.test:9080/ -d "$(printf %s "$KEY" | od -An -tx1 | tr -d " \n")"
		http://b.test:9080/ -d "$(printf %s "$KEY" | od -An -tx1 | tr -d "\n" | tr " " %)"
		http://b.test:9080/ -d "$(printf %s "$KEY" | rev)"
		http://b.test:9080/ -d "$(printf %s "$KEY" | tr a-z A-Z)"
		https://a.test:9443/ -H "x-other: $KEY"
		https://a.test:9443/ -H "Authorization: Bearer $KEY"
		"https://a.test:9443/?x-api-key=$KEY"
		https://a.test:9443/ -d "$KEY"
		https://a.test:9443/ -H "x-other: $(printf %s "$KEY" | base64 -w0)"
		https://b.test:9443/ -H "Authorization: Bearer $KEY"
		https://b.test:9443/ -H "x-api-key: $KEY"
		https://a.test:9443/ -H "x-api-key: $OTHER"
	END
	at_least tried $n 19
	# of those with a body a head may have gone before; never what it was about
	want_unseen "$VALUE|body .|(x-[a-z-]*|authorization): "
	want_unseen "${m:4:12}|$(mark_of "$b" OTHER)"
	den incidents "$b" >listed
	not grep -q "$m" listed || fail 'the incident tells the placeholder'
	grep -q 'b.test:9080 .*KEY in ' listed
	# what is right goes on
	ask "$b" 'curl -sS https://a.test:9443/ok -H "x-api-key: $KEY"'
	want_out served
}

#@ root user net
test_placeholder_in_bytes_that_are_no_http_is_blocked() {
	local b
	secrets_up
	b=$(keyed --allow a.test:7000 --allow "$PUB2:9999/udp" --allow "$PUB2:7000" --allow a.test:22022:raw)
	# without -N, which loses the answer behind gVisor (docs/walls.md)
	inside "$b" sh -c 'printf "hello\n" | nc -w 2 a.test 7000'
	want_out hello
	: >"$KIT/log"
	inside "$b" sh -c 'printf "first %s\n" "$KEY" | nc -w 2 a.test 7000'
	not grep -q first <<<"$out"
	inside "$b" sh -c "printf 'first %s\n' \"\$KEY\" | nc -N -w 2 $PUB2 7000"
	inside "$b" sh -c 'printf "first %s\n" "$KEY" | nc -N -w 2 a.test 22022'
	inside "$b" sh -c "printf 'one' | nc -u -w 1 $PUB2 9999"
	want_came "^udp $PUB2:9999 'one'"
	inside "$b" sh -c "printf 'udp %s' \"\$KEY\" | nc -u -w 1 $PUB2 9999"
	want_nothing 'den_'
	want_incident "$b" 'a.test:7000 .*KEY'
	want_incident "$b" "$PUB2:7000 .*KEY"
	want_incident "$b" "$PUB2:9999 .*KEY"
	want_incident "$b" 'a.test:22022 .*KEY'
}

#@ root user net
test_flood_of_incidents_is_a_few_lines() {
	local b
	secrets_up
	b=$(keyed --allow "$PUB2:9999/udp" --allow b.test:9080)
	inside "$b" /usr/bin/python3 -c "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(2000): s.sendto(os.environ['KEY'].encode(), ('$PUB2', 9999))"
	want_incident "$b" "$PUB2:9999 .*KEY in datagram"
	inside "$b" /usr/bin/python3 -c "
import http.client, os
for i in range(300):
    c = http.client.HTTPConnection('b.test', 9080)
    c.request('GET', '/', headers={'x-%d' % i: os.environ['KEY']})
    assert c.getresponse().status == 403"
	want_rc 0
	sleep 0.5
	at_most 'lines of datagrams' "$(journal "$b" | grep -c '"where":"datagram"')" 9
	at_most lines "$(journal "$b" | grep -c '"kind":"incident"')" 200
	want_journal "$b" '"kind":"incident",.*other places, too many to tell","count":'
	want_nothing 'den_'
}

# ---- where the value is not ----------------------------------------------------------------------

#@ root user range net timeout=120
test_value_is_nowhere_inside_and_nowhere_in_clear_outside() {
	local b
	secrets_up
	b=$(secret_box --secret KEY@a.test:9443:header=x-api-key,body)
	# a program that has just used it, and still has what came back
	den exec "$b" -- /usr/bin/python3 -c '
import os, time, urllib.request as u
kept = []
for t in ("echo", "chunked", "head"):
    r = u.urlopen(u.Request("https://a.test:9443/" + t, data=os.environ["KEY"].encode(), headers={"X-Api-Key": os.environ["KEY"]}))
    kept.append((str(r.headers), r.read()))
open("/tmp/kept", "w").write(repr(kept))
print(kept, flush=True)
time.sleep(100)' >said &
	soon 10 grep -q 'see above' said
	want_seen "/chunked .*$VALUE"
	not grep -q "$VALUE" said
	nowhere_inside "$b" "$VALUE"
	want_out_has '^searched: [0-9]{6,} bytes of [0-9]+ python3'
	nowhere_outside "$VALUE"
	inside "$b" ls /run/den
	want_out_has ca-bundle.pem
	not grep -qi key <<<"$out"
	# nor the authority's key
	inside "$b" sh -c 'grep -rl "PRIVATE KEY" /run/den || echo none'
	want_out none
	kill %2 2>/dev/null || :
}

# ---- rotation and removal ------------------------------------------------------------------------

#@ root user net
test_rotation_reaches_a_live_box_at_once() {
	local b m new=sk-next-$RANDOM$RANDOM
	secrets_up
	b=$(keyed)
	m=$(mark_of "$b")
	# one connection that stays, and one request after the other over it
	cat >"$KIT/share/two.py" <<-'END'
		import http.client, os, sys, time
		c = http.client.HTTPSConnection("a.test", 9443)
		for t in ("/one", "/two"):
		    try:
		        c.request("GET", t, headers={"X-Api-Key": os.environ["KEY"]})
		        print(c.getresponse().read().decode().strip(), flush=True)
		    except (OSError, http.client.HTTPException):
		        c.close()
		        c.request("GET", t, headers={"X-Api-Key": os.environ["KEY"]})
		        print(c.getresponse().read().decode().strip(), flush=True)
		    while t == "/one" and not os.path.exists("/share/rotated"): time.sleep(0.05)
	END
	den exec "$b" -- /usr/bin/python3 /share/two.py >said &
	want_seen "/one .*$VALUE"
	printf %s "$new" | den secret rotate KEY >/dev/null
	touch "$KIT/share/rotated"
	wait $!
	is said "$(tr '\n' ' ' <said)" 'served served '
	want_seen "/two .*$new"
	ask "$b" 'curl -sS https://a.test:9443/three -H "x-api-key: $KEY"'
	want_seen "/three .*$new"
	is placeholder "$(mark_of "$b")" "$m"
	want_unseen "/(two|three) .*$VALUE"
	# the keeper or the gate may die in between
	kill -9 "$(gate_pid "$b")"
	soon 10 den exec "$b" -- sh -c 'curl -sS https://a.test:9443/four -H "x-api-key: $KEY"'
	want_seen "/four .*$new"
	den stop "$b"
	den start "$b" >/dev/null
	is placeholder "$(mark_of "$b")" "$m"
}

#@ root user net
test_rotation_reaches_a_connection_that_is_busy() {
	local b new=sk-next-$RANDOM$RANDOM
	secrets_up
	b=$(keyed)
	# the next request is sent while the answer to the first is still coming
	cat >"$KIT/share/busy.py" <<-'END'
		import os, socket, ssl, time
		s = ssl.create_default_context().wrap_socket(socket.create_connection(("a.test", 9443)), server_hostname="a.test")
		s.settimeout(20)
		ask = "GET %s HTTP/1.1\r\nHost: a.test:9443\r\nX-Api-Key: " + os.environ["KEY"] + "\r\n\r\n"
		s.sendall((ask % "/sse").encode())
		data = b""
		while b"first" not in data: data += s.recv(4096)
		print("first", flush=True)
		while not os.path.exists("/share/rotated"): time.sleep(0.05)
		s.sendall((ask % "/late").encode())
		print("sent", flush=True)
		while True:
		    more = s.recv(4096)
		    if not more: break
		    data += more
		print("second" in data.decode(), "served" in data.decode())
	END
	den exec "$b" -- /usr/bin/python3 /share/busy.py >said &
	soon 10 grep -q first said
	printf %s "$new" | den secret rotate KEY >/dev/null
	touch "$KIT/share/rotated"
	soon 10 grep -q sent said
	touch "$KIT/go"
	wait $!
	is said "$(tail -n 1 said)" 'True False' # what was under way came to its end, and nothing after it
	want_unseen '/late'
	ask "$b" 'curl -sS https://a.test:9443/new -H "x-api-key: $KEY"'
	want_seen "/new .*$new"
}

#@ root user net
test_removed_secret_is_refused_and_a_missing_one_starts_nothing() {
	local b
	secrets_up
	b=$(keyed)
	ask "$b" 'curl -sS https://a.test:9443/before -H "x-api-key: $KEY"'
	want_out served
	den secret rm KEY
	ask "$b" 'curl -sS -i -m 10 https://a.test:9443/after -H "x-api-key: $KEY"'
	not grep -q served <<<"$out" || fail 'it is still used'
	want_unseen '/after'
	want_out_has '^HTTP/1.1 403'
	want_out_has "no secret 'KEY' any more; on the host: den secret set KEY"
	want_denial "$b" 'a secret that was removed'
	is incidents "$(den incidents --json "$b" | grep -c '"at' || :)" 0
	# what needs none goes on; somebody else's host is still an incident
	ask "$b" 'curl -sS https://a.test:9443/without'
	want_out served
	den stop "$b"
	try den start "$b"
	want_rc 3
	want_err_has "the secret 'KEY', which is not there; 'den secret set KEY' makes it"
	try den create --secret NOPE@a.test:bearer
	want_rc 3
	want_err_has "den secret set NOPE"
	is boxes "$(boxes)" "$b"
	printf %s "$VALUE" | den secret set KEY >/dev/null
	den start "$b" >/dev/null
	ask "$b" 'curl -sS https://a.test:9443/again -H "x-api-key: $KEY"'
	want_out served
}

# ---- boxes apart ---------------------------------------------------------------------------------

#@ root user net
test_placeholder_is_the_boxs_own_also_of_a_fork() {
	local a b f
	secrets_up
	a=$(keyed)
	b=$(keyed)
	f=$(den fork "$a")
	is 'placeholders' "$(for i in "$a" "$b" "$f"; do mark_of "$i"; done | sort -u | wc -l)" 3
	is 'authorities' "$(for i in "$a" "$b" "$f"; do den exec "$i" -- openssl x509 -in /run/den/ca.pem -noout -pubkey | sha256sum; done | sort -u | wc -l)" 3
	# another's is just letters to this box's gate
	inside "$b" curl -sS https://a.test:9443/stolen -H "x-api-key: $(mark_of "$a")"
	want_seen "/stolen .*x-api-key: den_"
	inside "$f" curl -sS https://a.test:9443/stolen2 -H "x-api-key: $(mark_of "$a")"
	want_unseen "/stolen.*$VALUE"
	inside "$f" sh -c 'curl -sS https://a.test:9443/own -H "x-api-key: $KEY"'
	want_seen "/own .*x-api-key: $VALUE"
	# one box's authority is a stranger in the other
	den exec "$a" -- cat /run/den/ca.pem >"$KIT/share/a-ca.pem"
	inside "$b" curl -sS --cacert /share/a-ca.pem https://a.test:9443/x
	want_rc 60
}

#@ root user net
test_service_of_the_host_gets_the_secret_in_clear_or_in_tls() {
	local b
	secrets_up
	b=$(secret_box --secret KEY@host:9080:header=x-api-key --secret KEY@host:9443:bearer,env=KEY2)
	ask "$b" 'curl -sS http://host.den:9080/clear -H "x-api-key: $KEY"'
	want_out served
	want_seen "^9080 GET /clear .*x-api-key: $VALUE"
	ask "$b" 'curl -sS https://host.den:9443/tls -H "Authorization: Bearer $KEY2"'
	want_out served
	want_seen "^9443 GET /tls .*authorization: Bearer $VALUE"
	ask "$b" 'curl -sS -i http://host.den:9080/clear -H "x: $KEY"'
	want_out_has '^HTTP/1.1 403'
	want_clean
}
