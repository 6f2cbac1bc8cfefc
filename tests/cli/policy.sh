# Policies: what is printed is what is read, what is wrong is said before anything starts.

#@ root user
test_presets_and_the_schema_are_printed() {
	is open "$(den policy show open)" "# preset open: anything on the public Internet, every port
*"
	den policy show >o
	is presets "$(grep -c '^# preset' o)" 4
	den policy show --json registries | /usr/bin/python3 -c '
import json, sys
p = json.load(sys.stdin)
assert p["preset"] == "registries" and len(p["allow"]) > 20, p'
	den policy schema | /usr/bin/python3 -c '
import json, sys
s = json.load(sys.stdin)
assert s["additionalProperties"] is False and "allow" in s["properties"], s'
}

#@ root user
test_stored_policies_come_and_go() {
	echo '{"allow": ["Example.com."], "presets": ["git"]}' | den policy save ci -
	den policy show ci | /usr/bin/python3 -c '
import json, sys
assert json.load(sys.stdin) == {"version": 1, "presets": ["git"], "allow": ["example.com"]}'
	# what is printed is taken again
	den policy show ci | den policy save other -
	is list "$(den policy ls --quiet | tr '\n' ' ')" "ci other "
	den policy rm ci
	is list "$(den policy ls --quiet)" other
	try "$DEN" policy show ci
	want_rc 3
	try "$DEN" policy save git -
	want_rc 2
	echo '{"alow": []}' >bad
	try "$DEN" policy save x ./bad
	want_rc 2
	want_err_has "did you mean 'allow'"
	den policy rm other
}

#@ root user
test_network_options_that_are_wrong_start_nothing() {
	local a
	for a in '--allow x.org:0' '--allow *' '--deny *' '--allow https://x.org' '--preset regstries' \
		'--secret K@a.b' '--secret K@*.a.b:bearer' '--policy ./nothing.json' '--net-conns 0' \
		'--net none --allow x.org' '--policy ci --allow x.org' '--srt-settings ./nothing'; do
		set -f
		# shellcheck disable=SC2086
		try "$DEN" create $a
		set +f
		[ "$rc" = 2 ] || [ "$rc" = 3 ] || fail "create $a: status $rc"
	done
	is boxes "$(den ls --quiet)" ""
}

#@ root user
test_settings_of_sandbox_runtime_share_and_protect() {
	mkdir -p p/.git/hooks p/src
	echo old >p/keep
	chmod -R a+rwX p
	cd p
	cat >../srt.json <<-END
	{"network": {"allowedDomains": [], "deniedDomains": []},
	 "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": ["keep"]}}
	END
	try "$DEN" run --srt-settings ../srt.json sh -c 'pwd; echo x >src/new; echo x >keep; mv .git g; echo x >.git/hooks/h; ls .git'
	is pwd "$(head -n 1 <<<"$out")" "$PWD"
	is new "$(cat src/new)" x
	is kept "$(cat keep)" old
	is hooks "$(ls .git/hooks)" ""
	echo '{"network": {"allowedDomains": ["*.com"]}}' >../srt.json
	try "$DEN" run --srt-settings ../srt.json true
	want_rc 125
	want_err_has 'allowedDomains: .0.: .*too broad'
	echo '{"netwrok": {}}' >../srt.json
	try "$DEN" run --srt-settings ../srt.json true
	want_err_has "did you mean 'network'"
}
