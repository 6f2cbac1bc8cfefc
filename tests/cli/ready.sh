# Boxes that are ready before somebody asks for them: den pool warm, and creates that take them.

source "$TESTS/kit_history.sh"

ready_ids() {
	den pool --json | js '"\n".join(r["id"] for r in v["ready"])'
}

ready_count() {
	den pool --json | js 'len(v["ready"])'
}

is_ready() {
	[ "$(ready_count)" = "$1" ]
}

# Of a ready box: its init, and its keeper, whose child that is.
init_of() {
	cut -d' ' -f1 "$DEN_STATE/boxes/$1/init"
}

keeper_of() {
	awk '/^PPid:/ { print $2 }' "/proc/$(init_of "$1")/status"
}

#@ root user range
test_a_create_takes_a_ready_box_and_it_is_like_a_fresh_one() {
	local r b f before user=nobody
	[ "$VARIANT" != user ] || user=root
	den pool warm host=1 2>said | grep -qx 'host: 1 ready, 1 made'
	grep -q 'made once' said
	r=$(ready_ids)
	[ -e "$DEN_STATE/boxes/$r" ]
	is "boxes that ls shows" "$(boxes)" ""
	try den exec "$r" -- true
	want_err_has 'no box'
	before=$(date +%s%3N)
	b=$(den create --env WHO=me --label a=b --ttl 1h --user $user --workdir /usr)
	is "the box" "$b" "$r"
	is "ready ones left" "$(ready_count)" 0
	f=$(den create --env WHO=me --label a=b --ttl 1h --user $user --workdir /usr)
	[ "$f" != "$b" ] || fail "a fresh one is the same"
	for id in "$b" "$f"; do
		is "who it is" "$(den exec "$id" -- sh -c 'echo $WHO; whoami; pwd; hostname; cat /etc/hostname')" \
			"$(printf 'me\n'$user'\n/usr\n%s\n%s' "$id" "$id")"
		is "labels" "$(den inspect --json "$id" | js 'v["labels"]')" "['a=b']"
		den inspect --json "$id" | js 'v["expires"]' | grep -q 20
	done
	[ "$(den exec "$b" -- cat /etc/machine-id)" != "$(den exec "$f" -- cat /etc/machine-id)" ] || fail "one machine id"
	[ "$(field "$b" boot_id)" != "$(field "$f" boot_id)" ] || fail "one boot id"
	is "boot id inside" "$(den exec "$b" -- cat /proc/sys/kernel/random/boot_id)" "$(field "$b" boot_id)"
	[ "$(date -d "$(field "$b" created)" +%s%3N)" -ge $((before / 1000 * 1000)) ] || fail "it says it is older than it is"
	# the same walls, the same history, nothing in it
	for id in "$b" "$f"; do
		den exec --user root "$id" -- sh -c 'cat /proc/self/status | grep -E "^(Cap|Seccomp:|NoNewPrivs)"; cat /proc/self/uid_map | wc -l
			ls -A /tmp /root /run /home; cat /proc/mounts | grep -v overlay | cut -d" " -f2,3; ps ax 2>/dev/null | wc -l' >"walls.$id"
		den log --json "$id" | js '[(c["number"], c["kind"], c["message"]) for c in v]' >>"walls.$id"
		den inspect --json "$id" | js 'sorted(k for k, x in v.items() if x is not None)' >>"walls.$id"
	done
	cmp "walls.$b" "walls.$f" || diff "walls.$b" "walls.$f"
}

#@ root user
test_twenty_creates_at_once_take_each_ready_box_once() {
	local n=20 i taken=0
	den pool warm host=8 >/dev/null
	ready_ids | sort >ready
	for i in $(seq $n); do
		den create >"id.$i" 2>"err.$i" &
	done
	for i in $(jobs -p); do
		wait "$i" || fail "a create failed: $(cat err.*)"
	done
	cat id.* | sort >ids
	is "boxes" "$(sort -u ids | wc -l)" $n
	is "boxes that ls shows" "$(boxes | wc -l)" $n
	taken=$(comm -12 ready ids | wc -l)
	is "taken" "$taken" 8
	is "ready ones left" "$(ready_count)" 0
	for i in $(cat ids); do
		is "host name" "$(den exec "$i" -- hostname)" "$i"
	done
}

#@ root user
test_only_what_is_of_the_shape_is_taken() {
	local r i
	den doctor --json | grep -q 'memory limits work' || skip "no memory limit here"
	den pool warm host=1 --memory 64M >/dev/null
	r=$(ready_ids)
	for i in "" "--memory 65M" "--memory 64M --history off" "--memory 64M --hostname web" "--memory 64M --name web" \
		"--memory 64M --allow example.com" "--memory 64M --pids 100" "--memory 64M --mount $TMP:/x:ro"; do
		# shellcheck disable=SC2086
		[ "$(den create $i)" != "$r" ] || fail "'$i' took it"
		is "ready after '$i'" "$(ready_ids)" "$r"
	done
	is "taken" "$(den create --memory 64M --nofile 100)" "$r"
	is "files" "$(den exec "$r" -- sh -c 'ulimit -n')" 100
	is "memory" "$(field "$r" memory)" $((64 << 20))
	# a name that is not the host name comes with the claim; one that is taken is told as ever
	den pool warm host=1 --hostname web --quiet >/dev/null
	r=$(ready_ids)
	try den create --hostname web --name web
	want_err_has "taken"
	is "taken by name" "$(den create --hostname web --name other)" "$r"
	is "by name" "$(den exec other -- hostname)" web
	try den create --hostname web --name other
	want_err_has "taken"
}

#@ root
test_the_gate_of_a_ready_box_has_the_policy_of_who_took_it() {
	local r
	den pool warm host=2 --allow one.example >/dev/null
	ready_ids | sort >ids
	r=$(den create --allow one.example)
	grep -qx "$r" ids
	den policy show "$r" >p
	grep -q one.example p
	r=$(den create --allow two.example)
	grep -qx "$r" ids
	den policy show "$r" >p
	grep -q two.example p
	not grep -q one.example p
	# what it enforces, not only what it says
	try den exec "$r" -- getent hosts one.example
	[ "$rc" != 0 ] || fail "the name of the other policy resolves"
	soon 5 den denials "$r" --json >d
	den denials "$r" | grep -q one.example
	try den pool warm host=1 --secret NOPE@one.example:bearer
	want_err_has 'made when it is asked for'
	is "ready" "$(ready_count)" 0
}

#@ root user
test_warm_makes_as_many_as_it_is_told_and_none() {
	local p
	try den pool warm
	want_err_has 'host=4'
	try den pool warm host
	want_err_has 'TEMPLATE=N'
	try den pool warm host=-1
	want_rc 2
	try den pool warm nosuch=1
	want_err_has "no template 'nosuch'"
	try den pool --memory 1G
	want_err_has 'pool warm'
	try den pool warm host=1 --name x
	want_err_has 'den create'
	try den pool warm host=1 --none
	want_err_has 'none'
	den pool warm host=3 --json | is_json
	is_ready 3
	den pool | grep -q 'ready boxes *host=3'
	den pool warm host=1 | grep -qx 'host: 1 ready, 2 thrown away'
	is_ready 1
	den pool warm --none | grep -qx '1 thrown away'
	is_ready 0
	is "directories" "$(ls "$DEN_STATE/boxes")" ""
	"$DEN" pool warm host=2 --run >o 2>e &
	p=$!
	soon 20 is_ready 2
	den create >/dev/null
	den create >/dev/null
	soon 20 is_ready 2
	kill -INT $p
	wait $p
	is_ready 2
}

#@ root user
test_gc_removes_a_ready_box_whose_keeper_was_killed_and_nobody_gets_it() {
	local r i
	den pool warm host=1 >/dev/null
	r=$(ready_ids)
	i=$(init_of "$r")
	kill -KILL "$(keeper_of "$r")"
	soon 5 is_ready 0
	[ "$(den create)" != "$r" ] || fail "a box without a keeper was taken"
	touch -d '1 minute ago' "$DEN_STATE/boxes/$r"
	den gc >/dev/null
	soon 5 dead "$i"
	[ ! -e "$DEN_STATE/boxes/$r" ]
	is "marks" "$(find "$DEN_STATE/ready" -type f)" ""
	# its init: the keeper sees that, and there is no such box
	den pool warm host=1 >/dev/null
	r=$(ready_ids)
	kill -KILL "$(init_of "$r")"
	soon 5 is_ready 0
	soon 5 not test -e "$DEN_STATE/boxes/$r"
	den create >/dev/null
	is "boxes" "$(boxes | wc -l)" 2
}

#@ root user
test_a_killed_claimer_leaves_a_box_or_none_and_no_mark() {
	local r k p i
	for i in 1 2 3; do
		den pool warm host=1 >/dev/null
		r=$(ready_ids)
		k=$(keeper_of "$r")
		kill -STOP "$k"
		"$DEN" create >/dev/null 2>&1 &
		p=$!
		soon 5 not test -e "$DEN_STATE"/ready/*/"$r"
		sleep 0.2
		kill -KILL $p
		wait $p 2>/dev/null || :
		kill -CONT "$k"
		# what it had asked for happened, or there is nothing: never a box that is half
		soon 10 settled "$r"
		is "ready" "$(ready_count)" 0
	done
	# taken, and then nothing: it does not stay for ever
	den pool warm host=1 >/dev/null
	r=$(ready_ids)
	rm "$DEN_STATE"/ready/*/"$r"
	soon 30 not test -e "$DEN_STATE/boxes/$r"
	remove_all
	den gc >/dev/null
	is "directories" "$(ls "$DEN_STATE/boxes")" ""
}

settled() {
	boxes | grep -qx "$1" || [ ! -e "$DEN_STATE/boxes/$1" ]
}

#@ root user
test_a_ready_box_of_an_older_template_is_thrown_away() {
	local b r n
	b=$(den create)
	in_box "$b" 'echo one >/root/version'
	den template create tool --from "$b" >/dev/null
	den pool warm tool=2 >/dev/null
	r=$(ready_ids)
	in_box "$b" 'echo two >/root/version'
	den template create tool --from "$b" >/dev/null
	n=$(den create --template tool)
	not grep -qx "$n" <<<"$r"
	is "version" "$(den exec "$n" -- cat /root/version)" two
	soon 10 is_ready 0
	# removed and made again, it has the same digest and other folders
	den rm --force "$n"
	den pool warm tool=1 --quiet >/dev/null
	den template rm --force tool
	den gc >/dev/null
	try den create --template tool
	want_err_has "no template"
	den template create tool --from "$b" >/dev/null
	n=$(den create --template tool)
	is "version" "$(den exec "$n" -- cat /root/version)" two
}

#@ root user fresh
test_twenty_creates_at_once_in_a_new_state_directory_all_work() {
	local i
	for i in $(seq 20); do
		"$DEN" create >"id.$i" 2>"err.$i" &
	done
	for i in $(jobs -p); do
		wait "$i" || fail "a create failed: $(cat err.*)"
	done
	is "boxes" "$(cat id.* | sort -u | wc -l)" 20
	is "boxes that ls shows" "$(boxes | wc -l)" 20
}

#@ root
test_boxes_of_a_template_with_programs_are_made_when_asked_for() {
	local b
	can_save
	b=$(den create)
	den template bake tool --from "$b" --full
	try den pool warm tool=1
	want_err_has 'has programs'
	is "ready" "$(ready_count)" 0
	den create --template tool >/dev/null
	remove_all
	den template rm tool
}

#@ root
test_boxes_behind_gvisor_can_be_ready_too() {
	local r b
	try den pool warm host=2 --wall gvisor
	[ "$rc" = 0 ] || skip "no gVisor here: $err"
	ready_ids >ids
	[ "$(den create --wall container)" != "$(head -n1 ids)" ] || fail "one of another wall was taken"
	b=$(den create --wall gvisor)
	grep -qx "$b" ids
	is "who it is" "$(den exec "$b" -- sh -c 'hostname; cat /etc/hostname')" "$(printf '%s\n%s' "$b" "$b")"
	r=$(ready_ids)
	kill -KILL "$(keeper_of "$r")"
	soon 5 nobody_keeps "$r" || fail "it is still kept"
	touch -d '1 minute ago' "$DEN_STATE/boxes/$r"
	den gc >/dev/null
	[ ! -e "$DEN_STATE/boxes/$r" ]
}
