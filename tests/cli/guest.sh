# What a server has of den: connections that somebody else makes, the rights of a guest, and the feed.

server() {
	"$PROGRAMS/server" "$@"
}

#@ root user range
test_the_library_needs_no_state_directory_of_its_own() {
	local id
	[ -x "$PROGRAMS/server" ] || fail "server was not built"
	# it was told a state directory and a program that are not there: all comes through dial
	id=$(server create name=web owner=org/k1 label=job=7)
	is "by name" "$(server id web)" "$id"
	is "by prefix" "$(server id "${id:0:12}")" "$id"
	is "by id" "$(server id "$id")" "$id"
	is info "$(server info web)" "owner org/k1
state running
turn 0
label job=7"
	is output "$(server run web echo hello)" "hello
status 0"
	is list "$(server list-all)" "$id running"
	try server id no-such-box
	want_rc 1
	want_err_has "^not_found: "
}

#@ root user
test_a_keeper_that_was_just_started_is_awaited() {
	local id pid
	id=$(server create)
	pid=$(field "$id" keeper_pid)
	kill -9 "$pid"
	soon 5 dead "$pid"
	is output "$(server run "$id" echo back)" "back
status 0"
	den stop "$id" # its keeper leaves, and the next one says that it has the box
	is state "$(server info "$id" | sed -n 2p)" "state stopped"
	try server id b-aaaaaaaaaaaaaaaaaa
	want_rc 1
	want_err_has "^not_found: "
}

refused() {
	try server "$@"
	want_rc 1
	want_err_has '^denied: .*not for guests'
}

#@ root user range
test_a_guest_reaches_boxes_and_nothing_of_the_host() {
	local b
	refused create mount=/etc
	refused create publish=80
	refused create publish=80=8080
	refused create 'policy={"version":1,"allow":["host:80"]}'
	refused create 'policy={"version":1,"allow":["192.168.0.0/16:80"]}'
	no_boxes || fail "a refused box stayed"
	b=$(server create)
	refused port "$b" 80
	refused pool 1000000000000
	refused gc
	refused issuer https://example.com
	refused rotate
	refused policy "$b" '{"version":1,"allow":["127.0.0.0/8:80"]}'
	refused save evil '{"version":1,"allow":["host:80"]}'
	# the connection goes on after a refusal, and what concerns the box alone works
	server port "$b" 0
	server policy "$b" '{"version":1,"allow":["example.com:443"]}'
	server save good '{"version":1,"allow":["example.com:443"]}'
	server secret KEY a-long-enough-value
	server jwks
	server doctor
	server lease "$b" 3600000
	server pool
	# whoever is none may
	server --host port "$b" 80
	den port "$b" | grep -q 80 || fail "the host's own program is refused, too"
}

#@ root user
test_a_guest_forks_no_directory_of_the_host() {
	local b f
	b=$(den create --mount /etc:/mnt:ro)
	refused fork "$b"
	is "boxes" "$(boxes)" "$b"
	b=$(den create --label a=1)
	den port "$b" 80 >/dev/null
	f=$(server fork "$b" owner=org/k2 name=mine)
	is info "$(server info mine)" "owner org/k2
state running
turn 0
label a=1"
	is "ports of the fork" "$(field "$f" ports)" "[]"
}

listen() {
	/usr/bin/python3 - "$DEN_STATE/serve" "$TMP/feed" <<'P' &
import os, socket, sys
os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("feed.sock")
out = open(sys.argv[2], "w", buffering=1)
while True:
	out.write(s.recv(1 << 17).decode("utf-8") + "\n")
P
	listener=$!
	soon 5 test -S "$DEN_STATE/serve/feed.sock"
}

told_of() {
	grep -q "$1" "$TMP/feed"
}

kinds() {
	/usr/bin/python3 -c '
import json, sys
for line in open(sys.argv[1]):
	e = json.loads(line)
	assert set(e) == {"kind", "box", "owner", "time", "data"}, e
	if e["box"] == sys.argv[2]: print(e["kind"])' "$TMP/feed" "$1"
}

#@ root user
test_the_feed_tells_what_happens_to_a_box() {
	local b f listener
	listen
	b=$(server create owner=org/k1)
	den exec "$b" -- sh -c 'echo x >/x; exit 3' || true
	echo text | den fs write "$b" /tmp/file
	den checkpoint "$b" >/dev/null
	den rollback "$b@0" >/dev/null || den rollback "$b" 0 >/dev/null
	server policy "$b" '{"version":1,"allow":["example.com:443"]}'
	f=$(server fork "$b")
	den stop "$b"
	den start "$b"
	den rm --force "$b" "$f"
	soon 5 told_of "\"box.deleted\",\"box\":\"$f\"" || fail "$(cat "$TMP/feed")"
	is_json lines <"$TMP/feed"
	is first "$(kinds "$b" | head -2 | tr '\n' ' ')" "box.created box.started "
	is last "$(kinds "$b" | tail -1)" box.deleted
	is "of the fork" "$(kinds "$f" | head -2 | tr '\n' ' ')" "box.forked box.started "
	for kind in exec.started exec.ended file.changed checkpoint.made rollback policy.changed box.stopped; do
		kinds "$b" | grep -qx "$kind" || fail "no $kind: $(kinds "$b")"
	done
	grep '"exec.ended"' "$TMP/feed" | grep -q '"owner":"org/k1".*"status":3' || fail "$(cat "$TMP/feed")"
	kill "$listener"
	wait "$listener" 2>/dev/null || true
	rm -r "$DEN_STATE/serve"
}

ended_execs() {
	[ "$(grep -c exec.ended "$TMP/feed")" = "$1" ]
}

#@ root user
test_nobody_waits_for_who_reads_the_feed() {
	local b listener
	listen
	b=$(den create)
	kill -STOP "$listener" # its queue fills
	for _ in $(seq 1 40); do
		den exec "$b" -- true
	done
	is state "$(state_of "$b")" running
	kill -CONT "$listener" # a short while is no loss
	soon 5 ended_execs 40 || fail "$(grep -c exec.ended "$TMP/feed") of 40 arrived"
	kill -STOP "$listener"
	den exec "$b" -- sh -c 'for i in 1 2 3; do :; done'
	kill -KILL "$listener"
	wait "$listener" 2>/dev/null || true
	den exec "$b" -- true
	rm -r "$DEN_STATE/serve"
	# a link where the socket should be leads nowhere
	mkdir "$DEN_STATE/serve"
	ln -s /dev/log "$DEN_STATE/serve/feed.sock"
	sleep 1.1
	den exec "$b" -- true
	rm -r "$DEN_STATE/serve"
}
