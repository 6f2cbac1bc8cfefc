# What boxes cost: prices that the server was started with, times what the meter counted.
source "$TESTS/serve/kit.sh"

# the cost of each row, from its figures and the prices in the same answer; prints the largest deviation
deviation() {
	j 'max(abs(r["cost"] - (
		v["prices"].get("cpu_hour", 0) * r["cpu_ms"] / 3.6e6 +
		v["prices"].get("gib_hour", 0) * r["memory_mib_s"] / 1024 / 3600 +
		v["prices"].get("gib_disk_hour", 0) * r["disk_mib_s"] / 1024 / 3600 +
		v["prices"].get("gib_in", 0) * r["net_in"] / 2**30 +
		v["prices"].get("gib_out", 0) * r["net_out"] / 2**30)) for r in v["usage"])'
}

#@ root waits
test_cost_is_what_was_used_times_its_price() {
	local b sum
	serve_start --price cpu-hour=3600 --price gib-hour=0.5 --price gib-out=9 --price gib-disk-hour=0.25 --currency EUR
	api_json POST /v1/boxes '{}'
	want_code 201
	b=$(j 'v["id"]')
	# a second of CPU time costs one; the memory stays for the meter to see
	api_json POST "/v1/boxes/$b/execs" \
		'{"command": "timeout 2 sh -c \"while :; do :; done\"; head -c 20000000 /dev/zero >/tmp/x; x=$(head -c 50000000 /dev/zero | tr \"\\0\" x); sleep 100", "detach": true}'
	want_code 202
	counted() {
		api GET "/v1/usage?box=$b"
		[ "$(j 'len(v["usage"]) and v["usage"][0]["cpu_ms"] > 100 and v["usage"][0]["memory_mib_s"] > 0')" = true ]
	}
	soon 60 counted || fail "usage: $out"
	is prices "$(j 'v["prices"]')" '{"cpu_hour": 3600.0, "gib_hour": 0.5, "gib_disk_hour": 0.25, "gib_out": 9.0}'
	is currency "$(j 'v["currency"]')" EUR
	# milliseconds are rounded: one of them is a thousandth here
	is "deviation $(deviation)" "$(/usr/bin/python3 -c 'import sys; print(float(sys.argv[1]) < 0.0011)' "$(deviation)")" True
	is 'a cost' "$(j 'v["usage"][0]["cost"] > 0.1')" true
	sum=$(j 'round(sum(r["cost"] for r in v["usage"]), 6)')
	serve_stop
	# prices are the server's, not the past's: others count from the next start, with the currency that is usual
	serve_start --price cpu-hour=7200
	api GET "/v1/usage?box=$b"
	is currency "$(j 'v["currency"]')" USD
	is 'of CPU time alone' "$(/usr/bin/python3 -c 'import sys; print(float(sys.argv[1]) < 0.0021)' "$(deviation)")" True
	is 'it costs more now' "$(j "sum(r['cost'] for r in v['usage']) > $sum")" true
	serve_stop
	serve_start
	api GET "/v1/usage?box=$b"
	is 'without prices' "$(j '[v["prices"], v["currency"], [r["cost"] for r in v["usage"]]]')" '[null, null, [null]]'
}

#@ root user
test_prices_that_are_none_are_refused_and_the_environment_has_some() {
	local bad
	for bad in cpu-hour cpu-hour= cpu-hour=x cpu-hour=-1 cpu-hour=1e3 cpu-hour=inf cpu-hour=1000001 hour=1 =1; do
		try "$DEN" serve --no-templates --listen 127.0.0.1:0 --price "$bad"
		want_rc 2
		want_err_has '--price'
	done
	try "$DEN" serve --no-templates --listen 127.0.0.1:0 --price hour=1
	want_err_has 'there are: cpu-hour gib-hour'
	try "$DEN" serve --no-templates --listen 127.0.0.1:0 --price gib-in=1 --price gib-in=2
	want_err_has 'was given before'
	for bad in eur EURO '' '€'; do
		try "$DEN" serve --no-templates --listen 127.0.0.1:0 --price gib-in=1 --currency "$bad"
		want_rc 2
		want_err_has '--currency'
	done
	try "$DEN" serve --no-templates --listen 127.0.0.1:0 --currency EUR
	want_err_has 'without --price'
	DEN_PRICE='cpu-hour=0.05, gib-out=0.09' DEN_CURRENCY=CHF serve_start
	api GET /v1/usage
	is 'of the environment' "$(j '[v["prices"], v["currency"]]')" '[{"cpu_hour": 0.05, "gib_out": 0.09}, "CHF"]'
	serve_stop
	DEN_PRICE='cpu-hour=0.05' DEN_CURRENCY=CHF serve_start --price gib-in=1
	api GET /v1/usage
	is 'the command line says it anew' "$(j '[v["prices"], v["currency"]]')" '[{"gib_in": 1.0}, "USD"]'
}
