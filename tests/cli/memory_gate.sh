# Programs that came from another box, and the network: what they hold of it stands for the same here.
source "$TESTS/gate/secrets_kit.sh"

# A program that has its placeholder in memory, and uses it when it is told to.
asker() {
	den exec --detach "$1" -- sh -c 'while :; do
		if [ -e /go ]; then
			rm /go
			curl -sS "https://a.test:9443/$(cat /path)" -H "x-api-key: $KEY" >/answer 2>&1
			touch /done
		fi
		sleep 0.05
	done' >/dev/null
}

# go BOX PATH: what it gets
go() {
	den exec "$1" -- sh -c "rm -f /done /answer; echo $2 >/path; touch /go"
	soon 15 den exec "$1" -- test -e /done
	den exec "$1" -- cat /answer
}

#@ root net timeout=90
test_placeholders_in_memory_stand_for_the_same_in_a_fork_and_after_a_pause() {
	local b f g
	secrets_up
	b=$(secret_box --secret KEY@a.test:9443:header=x-api-key)
	asker "$b"
	is "at first" "$(go "$b" first)" served
	f=$(den fork --full "$b")
	is "in the fork" "$(go "$f" fork)" served
	want_seen "^9443 GET /fork .*x-api-key: $VALUE "
	is "in the box" "$(go "$b" box)" served
	g=$(den fork --full "$f")
	is "in a fork of the fork" "$(go "$g" again)" served
	want_seen "^9443 GET /again .*x-api-key: $VALUE "
	den pause --disk "$g" >/dev/null
	is "after a pause" "$(go "$g" paused)" served
	want_seen "^9443 GET /paused .*x-api-key: $VALUE "
	# a program that is started there has one of its own
	[ "$(den exec "$g" -- printenv KEY)" != "$(den exec "$b" -- printenv KEY)" ] || fail "the same placeholder"
	nowhere_outside "$VALUE"
	# and another box's is no use here
	local other
	other=$(secret_box --secret KEY@a.test:9443:header=x-api-key)
	den exec "$other" -- sh -c "curl -sS https://a.test:9443/stolen -H 'x-api-key: $(den exec "$b" -- printenv KEY)'" >/dev/null 2>&1 || :
	want_unseen "GET /stolen .*$VALUE"
}
