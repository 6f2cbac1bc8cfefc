# den serve as processes: what it gives up, what it survives, how it starts and ends.
source "$TESTS/serve/kit.sh"

status_of() {
	awk -v f="$2:" '$1 == f { print $2 }' "/proc/$1/status"
}

#@ root user
test_server_holds_no_privilege() {
	local pid
	serve_start
	pid=$(server_pid)
	is capabilities "$(status_of "$pid" CapEff)$(status_of "$pid" CapPrm)" 00000000000000000000000000000000
	is no_new_privs "$(status_of "$pid" NoNewPrivs)" 1
	is seccomp "$(status_of "$pid" Seccomp)" 2
	if [ "$VARIANT" = root ]; then
		is 'bounding set' "$(status_of "$pid" CapBnd)" 0000000000000000
		[ "$(status_of "$pid" Uid)" -ne 0 ] || fail 'it is still root'
		is group "$(status_of "$pid" Gid)" "$(status_of "$pid" Uid)"
		is 'owner of its files' "$(stat -c %u "$DEN_STATE/serve/serve.db")" "$(status_of "$pid" Uid)"
		is 'its directory' "$(stat -c %a "$DEN_STATE/serve")" 700
		# every thread
		for t in /proc/"$pid"/task/*; do
			grep -q '^Seccomp:.2$' "$t/status" || fail "thread ${t##*/} has no filter"
		done
		[ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ] || fail 'the network of the host'
		# nothing of the host's files is there
		[ "$(ls "/proc/$pid/root")" = serve ] || fail "it sees: $(ls "/proc/$pid/root")"
		is 'its working directory' "$(readlink "/proc/$pid/cwd")" /serve
	fi
}

# From the first line to the last, also of a start that fails.
#@ root user
test_every_line_of_the_log_is_json_where_nobody_looks() {
	serve_start
	api GET /v1/nothing
	api GET /v1/boxes
	try timeout 20 "$DEN" serve --listen 127.0.0.1:0
	want_rc 4
	printf '%s\n' "$err" >>"$TMP/serve.log"
	serve_stop
	serve_start --listen 127.0.0.1:0
	serve_stop
	/usr/bin/python3 - "$TMP/serve.log" <<'END' || fail "$(serve_log)"
import json, sys
seen = set()
for line in open(sys.argv[1]):
    v = json.loads(line)
    assert {"time", "level", "what"} <= set(v), v
    seen.add(v["what"])
assert {"ready", "stop"} <= seen, seen
END
}

#@ root user
test_command_line_knows_boxes_by_the_id_that_clients_of_e2b_have() {
	local b i
	b=$(den create)
	i=i${b#b-}
	try den exec "$i" -- echo hello
	want_rc 0
	want_out hello
	is id "$(den inspect "$i" --json | /usr/bin/python3 -c 'import json,sys; v=json.load(sys.stdin); print((v[0] if isinstance(v, list) else v)["id"])')" "$b"
	try den inspect iaaaaaaaaaaaaaaaaaa
	want_rc 3
	den rm -f "$i"
	no_boxes || fail "$(boxes)"
}

#@ root user
test_second_server_on_the_same_state_is_refused() {
	serve_start
	try timeout 20 "$DEN" serve --listen 127.0.0.1:0
	want_rc 4
	want_err_has 'another den serve'
	api GET /healthz
	want_code 200
}

#@ root user fresh
test_first_start_makes_a_key_and_tells_it_once() {
	local first
	serve_start
	[ -f "$DEN_STATE/first-key" ] || fail 'no first-key'
	is 'mode of first-key' "$(stat -c '%a %u' "$DEN_STATE/first-key")" "600 $(id -u)"
	first=$(sed -n 's/^export E2B_API_KEY=//p' "$DEN_STATE/first-key")
	is url "$(sed -n 's/^export E2B_API_URL=//p' "$DEN_STATE/first-key")" "$URL"
	KEY=$first
	api GET /v1/whoami
	want_code 200
	is org "$(j 'v["org"]')" default
	is admin "$(j 'v["admin"]')" true
	grep -q "$first" "$TMP/serve.log" && fail 'the key is in the log'
	grep -rqa "$first" "$DEN_STATE/serve/serve.db" && fail 'the key is in the database as it is'
	rm "$DEN_STATE/first-key"
	serve_stop
	serve_start
	[ ! -e "$DEN_STATE/first-key" ] || fail 'told again'
	api GET /v1/whoami
	want_code 200
}

#@ root user
test_killed_server_leaves_boxes_running_and_comes_back() {
	serve_start
	kill_one "$(server_pid)" "$SERVE_PID"
}

# Boxes and what runs in them do not notice, and a new server serves them.
kill_one() {
	local victim=$1 other=$2 id before
	id=$(den create)
	den exec --detach "$id" sh -c 'while :; do echo x >>/tmp/ticks; sleep 0.1; done'
	kill -9 "$victim"
	soon 5 dead "$victim" || fail 'it lives'
	soon 5 dead "$other" || fail 'the other process stays'
	before=$(den exec "$id" sh -c 'wc -l </tmp/ticks')
	wait "$SERVE_PID" 2>/dev/null || true
	SERVE_PID=''
	serve_start
	api GET "/v1/boxes/$id"
	want_code 200
	is state "$(j 'v["state"]')" running
	soon 5 sh -c "[ \$('$DEN' exec $id sh -c 'wc -l </tmp/ticks') -gt $before ]" || fail 'the exec did not go on'
}

#@ root user
test_killed_launcher_takes_the_server_along_and_boxes_go_on() {
	serve_start
	kill_one "$SERVE_PID" "$(server_pid)"
}

#@ root user
test_sigterm_ends_it_gracefully() {
	local before
	serve_start
	before=$(now_ms)
	kill "$SERVE_PID"
	soon 10 dead "$SERVE_PID" || fail 'it does not end'
	wait "$SERVE_PID" || fail "status $?"
	at_most 'time to end with nothing to do' $(($(now_ms) - before)) 5000
	grep -q 'boxes go on' "$TMP/serve.log" || fail "$(serve_log)"
	SERVE_PID=''
}

#@ root user
test_unix_socket_serves_and_asks_for_a_key() {
	serve_start --socket "$TMP/api.sock"
	out=$(curl -sS --unix-socket "$TMP/api.sock" -o /dev/null -w '%{http_code}' http://den/healthz)
	is healthz "$out" 200
	out=$(curl -sS --unix-socket "$TMP/api.sock" -o /dev/null -w '%{http_code}' http://den/v1/whoami)
	is 'without a key' "$out" 401
	out=$(curl -sS --unix-socket "$TMP/api.sock" -H "X-API-Key: $KEY" -o /dev/null -w '%{http_code}' http://den/v1/whoami)
	is 'with a key' "$out" 200
}

#@ root user
test_self_signed_tls_is_made_once_and_fits_its_names() {
	local before port
	serve_start --tls-self-signed
	port=$PORT
	case $URL in https://*) ;; *) fail "the address is $URL" ;; esac
	openssl x509 -in "$DEN_STATE/serve-tls.pem" -out "$TMP/cert.pem"
	is 'mode of the key' "$(stat -c %a "$DEN_STATE/serve-tls.pem")" 600
	out=$(curl -sS --cacert "$TMP/cert.pem" "$URL/healthz")
	is healthz "$out" ok
	not curl -sS "$URL/healthz" 2>/dev/null || fail 'an unknown certificate was believed'
	not curl -sS --max-time 5 "http://127.0.0.1:$PORT/healthz" 2>/dev/null || fail 'plain HTTP on the TLS port'
	before=$(sum "$DEN_STATE/serve-tls.pem")
	serve_stop
	serve_start --tls-self-signed
	is 'the certificate after a restart' "$(sum "$DEN_STATE/serve-tls.pem")" "$before"
	serve_stop
	serve_start --tls-self-signed --domain den.test
	openssl x509 -in "$DEN_STATE/serve-tls.pem" -out "$TMP/cert.pem"
	out=$(curl -sS --cacert "$TMP/cert.pem" --connect-to "::127.0.0.1:$port" -o /dev/null -w '%{http_code}' \
		https://3000-b-x.den.test/healthz)
	is 'name of a box' "$out" 404 # whose there is none: the certificate is believed, and that is what is tried
}

#@ root user
test_tls_with_a_certificate_of_ones_own_and_clear_words_for_a_wrong_one() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -days 2 \
		-addext subjectAltName=IP:127.0.0.1 -keyout "$TMP/k.pem" -out "$TMP/c.pem" 2>/dev/null
	openssl ecparam -name prime256v1 -genkey -noout -out "$TMP/other.pem"
	serve_start --tls-cert "$TMP/c.pem" --tls-key "$TMP/k.pem"
	is healthz "$(curl -sS --cacert "$TMP/c.pem" "$URL/healthz")" ok
	serve_stop
	try den serve --listen 127.0.0.1:0 --tls-cert "$TMP/c.pem" --tls-key "$TMP/other.pem"
	want_rc 2
	want_err_has 'is not that of the certificate'
	try den serve --listen 127.0.0.1:0 --tls-cert "$TMP/none.pem" --tls-key "$TMP/k.pem"
	want_rc 3
	try den serve --listen 127.0.0.1:0 --tls-cert "$TMP/c.pem"
	want_rc 2
	want_err_has 'belong together'
}

#@ root user
test_socket_activation_serves_on_the_passed_socket_and_says_ready() {
	local port
	serve_start
	serve_stop
	/usr/bin/python3 - "$DEN" "$TMP" <<'END' &
import os, socket, subprocess, sys
den, tmp = sys.argv[1:]
s = socket.create_server(("127.0.0.1", 0))
open(tmp + "/port", "w").write(str(s.getsockname()[1]))
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.bind(tmp + "/notify")
pid = os.fork()
if pid == 0:
    os.dup2(s.fileno(), 3)
    os.set_inheritable(3, True)
    for fd in range(4, 64):
        try: os.close(fd)
        except OSError: pass
    env = dict(os.environ, LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=tmp + "/notify")
    log = os.open(tmp + "/serve.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 2)
    os.execve(den, [den, "serve", "--no-templates", "--log", "json"], env)
open(tmp + "/pid", "w").write(str(pid))
n.settimeout(20)
open(tmp + "/said", "wb").write(n.recv(100))
os.waitpid(pid, 0)
END
	soon 20 test -s "$TMP/said" || fail "no READY: $(cat "$TMP/serve.log")"
	is notification "$(cat "$TMP/said")" READY=1
	port=$(cat "$TMP/port")
	is healthz "$(curl -sS "http://127.0.0.1:$port/healthz")" ok
	kill "$(cat "$TMP/pid")"
	wait
}

#@ root user
test_keys_are_made_listed_and_revoked_at_once() {
	local key id
	serve_start
	key=$(den key create --org acme --name ci --scope read --boxes 3 --cpus 1.5 --memory 1G --disk 2G --rate 600)
	case $key in e2b_*) ;; *) fail "the key is $key" ;; esac
	# its id is told with it, beside it; with --json in it
	try den key create --org other
	is 'lines on standard output' "$(wc -l <<<"$out")" 1
	id=$(den key ls --org other --json | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["id"])')
	want_err_has "key $id of other"
	want_err_has "'den key revoke $id'"
	den key revoke --org other "$id"
	id=$(den key create --org other --json | /usr/bin/python3 -c 'import json,sys; k=json.load(sys.stdin); assert k["key"].startswith("e2b_"); print(k["id"])')
	den key revoke --org other "$id"
	try den key ls --json
	want_rc 0
	is_json <<<"$out"
	id=$(/usr/bin/python3 -c 'import json,sys; k=[k for k in json.load(sys.stdin) if k["org"]=="acme"][0]
assert k["quota"] == {"boxes":3,"cpu_milli":1500,"memory":1<<30,"disk":2<<30,"rate":600}, k
assert k["scopes"] == ["read"] and k["name"] == "ci" and k["revoked"] is None, k
print(k["id"])' <<<"$out")
	grep -q "$key" <<<"$out" && fail 'a listing has the key'
	KEY=$key
	api GET /v1/whoami
	want_code 200
	is org "$(j 'v["org"]')" acme
	# the other spelling is the same key
	KEY=den_${key#e2b_}
	api GET /v1/whoami
	want_code 200
	den key revoke "$id"
	api GET /v1/whoami
	want_code 401
	KEY=$key
	api GET /v1/whoami
	want_code 401
	try den key revoke "$id"
	want_rc 3
	try den key create --scope nonsense
	want_rc 2
	want_err_has 'boxes read secrets templates admin'
	try den key create --org 'No Good'
	want_rc 2
}

#@ root user
test_wrong_keys_are_slowed_down_and_a_known_client_is_not_locked_out() {
	local i limited=0
	serve_start
	api GET /v1/whoami
	want_code 200
	for i in $(seq 1 40); do
		code=$(curl -sS -o /dev/null -w '%{http_code}' -D "$TMP/.head" -H "X-API-Key: e2b_$(printf %040x "$i")" "$URL/v1/whoami")
		[ "$code" != 429 ] || limited=$((limited + 1))
	done
	at_least 'refused as too many' "$limited" 10
	grep -qi '^retry-after: [0-9]' "$TMP/.head" || fail 'no Retry-After'
	api GET /v1/whoami
	want_code 200
}

#@ root user
test_rate_quota_of_a_key_is_kept() {
	local i codes=''
	serve_start
	KEY=$(new_key --rate 60)
	for i in $(seq 1 30); do
		api GET /v1/whoami
		codes="$codes $code"
	done
	grep -q 429 <<<"$codes" || fail "never refused: $codes"
	grep -q 200 <<<"$codes" || fail "never let in: $codes"
	grep -qi '^retry-after: [0-9]' "$TMP/.head" || fail 'no Retry-After'
}

gone() {
	! den ls --quiet | grep -q "$1"
}

#@ root user
test_deadline_that_passed_while_nothing_ran_is_kept_when_the_server_comes_back() {
	local id keeper
	serve_start
	id=$(den create --ttl 4s)
	serve_stop
	keeper=$(field "$id" keeper_pid)
	[ -n "$keeper" ] && [ "$keeper" != 0 ] || fail "no keeper: $(den inspect --json "$id")"
	kill -9 "$keeper"
	sleep 5
	den ls --quiet | grep -q "$id" || fail 'it went without its keeper, and nobody was there to end it'
	serve_start
	soon 10 gone "$id" || fail 'the box is still there'
}

#@ root user
test_addresses_that_are_none_are_refused() {
	local a
	for a in 127.0.0.1:99999 127.0.0.1:65536 '[::1]:-1' 127.0.0.1: 2600 nowhere.example:80 127.0.0.1:80x; do
		try "$DEN" serve --no-templates --listen "$a"
		want_rc 2
		want_err_has 'no address to listen on'
	done
}
