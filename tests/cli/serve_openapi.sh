# docs/api/openapi.yaml is complete and true: it has the routes that there are and no others, and what the server
# answers is what it says, field by field.
source "$TESTS/serve/kit.sh"

#@ root
test_openapi_names_every_route_and_no_other() {
	/usr/bin/python3 -c 'import yaml' 2>/dev/null || skip 'python3-yaml is not installed'
	"$(dirname "$DEN")/den-serve" --routes >"$TMP/routes"
	/usr/bin/python3 "$TESTS/serve/openapi.py" routes "$TMP/routes"
}

#@ root
test_openapi_is_served_as_it_is() {
	serve_start
	curl -sS "$URL/v1/openapi.yaml" >"$TMP/served"
	cmp "$TMP/served" "$TESTS/../docs/api/openapi.yaml"
}

#@ root
test_openapi_describes_every_answer() {
	/usr/bin/python3 -c 'import yaml' 2>/dev/null || skip 'python3-yaml is not installed'
	serve_start
	SERVER_PID=$(server_pid) /usr/bin/python3 "$TESTS/serve/openapi.py" answers
}
