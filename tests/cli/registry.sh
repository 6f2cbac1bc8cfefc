# Images from and to a registry: den-fetch before a real one, before one that breaks and before one that
# lies. All of it on the loopback.

FETCH=${DEN%/*}/den-fetch
HELPER="/usr/bin/python3 $TESTS/programs/registry.py"

# It looks for credentials where another user's may be. (For the registry such a variable is a setting.)
skopeo() {
	echo '{}' >"$TMP/auth.json"
	REGISTRY_AUTH_FILE=$TMP/auth.json command skopeo "$@"
}

fetch() {
	"$FETCH" "$@"
}

# pull REPO DIR [OPTION...]: from $REG, for one platform wherever the tests run
pull() {
	local repo=$1 dir=$2
	shift 2
	fetch pull --plain-http --platform linux/amd64 --quiet "$@" "$REG/$repo" "$dir"
}

need() {
	local tool
	for tool; do
		command -v "$tool" >/dev/null || skip "$tool is not installed"
	done
	[ -x "$FETCH" ] || fail "den-fetch is not beside den"
}

# real_registry [YAML]: a real one with a store of its own; sets REG
real_registry() {
	need docker-registry skopeo
	cat >registry.yml <<-END
		version: 0.1
		log: {level: info, accesslog: {disabled: true}}
		storage: {filesystem: {rootdirectory: "$TMP/registry-store"}}
		${1:-http: {addr: "127.0.0.1:0"\}}
	END
	: >registry.log
	docker-registry serve registry.yml >registry.log 2>&1 &
	soon 20 grep -q 'listening on' registry.log || fail "no registry: $(tail -n 3 registry.log)"
	REG=$(sed -n 's/.*listening on \(127[.0-9]*:[0-9]*\).*/\1/p' registry.log | head -n 1)
}

# serve ARGUMENT...: of registry.py; sets PORTS
serve() {
	need /usr/bin/python3
	: >ports
	$HELPER "$@" >ports 2>helper.log &
	soon 20 test -s ports || fail "no server: $(cat helper.log)"
	PORTS=$(cat ports)
}

proxy() {
	serve proxy "${REG##*:}" "$1" "$TMP/proxy.log"
	REG=127.0.0.1:$PORTS
}

liar() {
	serve liar "$TMP/liar.log" "$@"
	REG=127.0.0.1:${PORTS% *}
}

layout() {
	$HELPER layout "$@"
}

# put DIR NAME [OPTION...]: what is in a layout directory into the registry
put() {
	local dir=$1 name=$2
	shift 2
	skopeo --insecure-policy copy -q --dest-tls-verify=false "$@" "oci:$dir:latest" "docker://$REG/$name"
}

# json FILE PATH...: one value
json() {
	/usr/bin/python3 -c '
import json, sys
v = json.load(open(sys.argv[1]))
for k in sys.argv[2:]: v = v[int(k) if k.isdigit() else k]
print(v)' "$@"
}

# asked PATTERN [FILE]: how many lines of the log match
asked() {
	grep -Ec -- "$1" "${2:-$TMP/proxy.log}" || :
}

# Every blob is what its name says, all that the image names is there, and nothing is half.
is_whole() {
	/usr/bin/python3 - "$1" <<-'END' || fail "the layout directory '$1' is not whole"
		import hashlib, json, os, sys
		d = sys.argv[1]
		assert json.load(open(d + "/oci-layout")) == {"imageLayoutVersion": "1.0.0"}
		assert sorted(os.listdir(d)) == ["blobs", "index.json", "oci-layout"], os.listdir(d)
		for name in os.listdir(d + "/blobs/sha256"):
		    data = open(d + "/blobs/sha256/" + name, "rb").read()
		    assert hashlib.sha256(data).hexdigest() == name, name
		def load(e):
		    data = open(d + "/blobs/sha256/" + e["digest"][7:], "rb").read()
		    assert len(data) == e["size"], e
		    return data
		entries = json.load(open(d + "/index.json"))["manifests"]
		assert len(entries) == 1, entries
		m = json.loads(load(entries[0]))
		for e in [m["config"]] + m["layers"]:
		    load(e)
	END
}

# No blob with a name, no index.
has_no_image() {
	[ ! -e "$1/index.json" ] || fail "'$1' has an index.json"
}

parts() {
	find "$1" -name '.part-*' | wc -l
}

# layers_kept DIR: those with a name; a configuration is smaller
layers_kept() {
	find "$1/blobs/sha256" -type f ! -name '.part-*' -size +3k | wc -l
}

test_pull_gives_what_skopeo_put_there() {
	real_registry
	layout src --layers 3000000,200000,5000,5000
	put src team/tool:1
	try pull team/tool:1 dst
	want_rc 0
	want_out "$(json src/index.json manifests 0 digest)"
	is_whole dst
	diff -r src/blobs dst/blobs
	is "tag" "$(json dst/index.json manifests 0 annotations org.opencontainers.image.ref.name)" 1
	# and skopeo understands what was written
	skopeo --insecure-policy copy -q oci:dst:1 dir:again
	is "layer" "$(sum "again/$(json dst/blobs/sha256/${out#sha256:} layers 0 digest | cut -d: -f2)")" \
		"$(json dst/blobs/sha256/${out#sha256:} layers 0 digest | cut -d: -f2)"
	# by digest, and with the tag that is meant when none is given
	put src team/tool
	try pull "team/tool@$out" by-digest
	want_rc 0
	is_whole by-digest
	try pull team/tool by-default
	want_rc 0
	is "tag" "$(json by-default/index.json manifests 0 annotations org.opencontainers.image.ref.name)" latest
	try pull team/tool:none dst2
	want_rc 3
	want_err_has "no image 'team/tool:none'.*check the name"
}

test_a_registry_on_this_machine_needs_no_plain_http() {
	real_registry
	layout src
	put src a/b:1
	try fetch pull --platform linux/amd64 "localhost:${REG##*:}/a/b:1" dst
	want_rc 0
	is_whole dst
}

test_what_is_there_and_right_is_kept() {
	local blob before
	real_registry
	layout src
	put src a/b:1
	proxy pass
	pull a/b:1 dst
	is "blobs asked for" "$(asked 'GET.*/blobs/')" 3
	pull a/b:1 dst
	is "blobs asked for in all" "$(asked 'GET.*/blobs/')" 3
	# one that is damaged is not
	blob=$(find dst/blobs/sha256 -size +100k)
	before=$(sum "$blob")
	printf x | dd of="$blob" bs=1 seek=5000 conv=notrunc status=none
	pull a/b:1 dst
	is "blobs asked for in all" "$(asked 'GET.*/blobs/')" 4
	is "the blob" "$(sum "$blob")" "$before"
	is_whole dst
}

test_a_cut_connection_is_resumed() {
	real_registry
	layout src --layers 900000,300000
	put src a/b:1
	proxy cut:150000
	try pull a/b:1 dst
	want_rc 0
	is_whole dst
	diff -r src/blobs dst/blobs
	is "resumed" "$(asked 'GET.*"range": "bytes=150000-"')" 2
	is "asked in all" "$(asked 'GET.*/blobs/')" 5
}

test_an_ended_pull_leaves_parts_and_the_next_one_goes_on() {
	local direct p size
	real_registry
	direct=$REG
	layout src --layers 900000
	put src a/b:1
	proxy stall:400000
	# a shell starts what is in the background without SIGINT
	env --default-signal=INT "$FETCH" pull --plain-http --platform linux/amd64 --quiet "$REG/a/b:1" dst &
	p=$!
	part_has_come() {
		[ "$(find dst -name '.part-*' -size +390k 2>/dev/null | wc -l)" = 1 ]
	}
	soon 10 part_has_come || fail "nothing came: $(find dst)"
	kill -INT $p
	rc=0
	wait $p || rc=$?
	is status "$rc" 130
	has_no_image dst
	is "layers kept" "$(layers_kept dst)" 0
	size=$(stat -c %s dst/blobs/sha256/.part-*)
	REG=$direct
	proxy pass
	try pull a/b:1 dst
	want_rc 0
	is_whole dst
	is "resumed" "$(asked "GET.*\"range\": \"bytes=$size-\"")" 1
	# a part that is not what the beginning of the blob is
	rm -rf dst2
	mkdir -p dst2/blobs/sha256
	p=$(find dst/blobs/sha256 -size +100k -printf %f)
	head -c 1000 /dev/zero >"dst2/blobs/sha256/.part-$p"
	try pull a/b:1 dst2
	want_rc 0
	is_whole dst2
	# one that is all there, and one that is too long
	rm -rf dst3
	mkdir -p dst3/blobs/sha256
	cp "dst/blobs/sha256/$p" "dst3/blobs/sha256/.part-$p"
	: >proxy.log
	pull a/b:1 dst3
	is "asked for it" "$(asked "GET.*$p")" 0
	is_whole dst3
	rm "dst3/blobs/sha256/$p"
	cat "dst/blobs/sha256/$p" /etc/passwd >"dst3/blobs/sha256/.part-$p"
	pull a/b:1 dst3
	is_whole dst3
}

test_a_flipped_bit_is_refused_and_nothing_kept() {
	real_registry
	layout src --layers 200000
	put src a/b:1
	proxy flip
	try pull a/b:1 dst
	want_rc 4
	want_err_has 'another digest.*nothing of it is kept'
	has_no_image dst
	is parts "$(parts dst)" 0
	is layers "$(layers_kept dst)" 0
}

#@ root user waits
test_lies_are_refused_and_nothing_kept() {
	local case repo want words
	liar
	# repository, status, what is said
	while read -r repo want words; do
		rm -rf dst
		try timeout 30 "$FETCH" pull --plain-http --platform linux/amd64 "$REG/$repo:1" dst
		[ "$rc" = "$want" ] || fail "$repo: $(told)"
		grep -Eq -- "$words" <<<"$err" || fail "$repo: no '$words': $(told)"
		if grep -q $'\x1b' <<<"$err"; then fail "$repo: an escape sequence went to the terminal"; fi
		has_no_image dst
		is "$repo: parts" "$(parts dst)" 0
		is "$repo: layers" "$(layers_kept dst)" 0
	done <<-'END'
		updir 2 is not a digest
		absolute 2 is not a digest
		upper 2 is not a digest
		longer 2 is not a digest
		less 4 nothing of it is kept
		lesschunked 4 nothing of it is kept
		more 4 nothing of it is kept
		morechunked 4 nothing of it is kept
		endless 4 more than the 1048576 bytes
		negative 6 is no size
		odd 8 application/vnd.example.odd
		chart 8 application/vnd.example.chart
		type 8 application/vnd.example.thing
		both 2 an index and an image at once
		deep 6 nested deeper
		brackets 6 nested deeper
		values 6 more than 100000 values
		huge 6 more than 4194304 bytes
		endlessjson 6 more than 4194304 bytes
		headers 6 headers never end
		old 8 schema 1
		text 2 not JSON
		told 4 damaged on the way
		loop 4 redirects more than
		file 5 neither http nor https
		absent 3 manifest unknown
		broken 7 disk .x1b.2J full
	END
	is "asked one that is broken" "$(asked 'broken/manifests' liar.log)" 5
	[ ! -e /tmp/den-fetch-was-here ] || fail "a digest became a path"
	# by digest, and something else comes
	try pull "exchanged@$(printf x | sha256sum | sed 's/\(.*\)  -/sha256:\1/')" dst
	want_rc 4
	want_err_has 'sent something else'
}

#@ root user timeout=90 waits
test_what_may_pass_by_itself_is_tried_again() {
	local began
	liar
	began=$(now_ms)
	pull busy:1 busy
	is_whole busy
	is "asked" "$(asked '"GET".*busy/manifests' liar.log)" 3
	at_least "milliseconds, with Retry-After 1 twice" $(($(now_ms) - began)) 2000
	began=$(now_ms)
	pull toomany:1 toomany
	is_whole toomany
	at_least "milliseconds, with Retry-After 2" $(($(now_ms) - began)) 2000
	pull ignores:1 ignores
	is_whole ignores
	is "asked with Range" "$(asked 'ignores/blobs.*"range": "bytes=30000-"' liar.log)" 1
	# a part that was not asked for is not taken
	try pull wrongpart:1 wrongpart
	want_rc 4
	want_err_has 'another part'
	has_no_image wrongpart
	# one that accepts and then is silent
	began=$(now_ms)
	try timeout 60 "$FETCH" pull --plain-http --timeout 1 "$REG/silent:1" silent
	want_rc 7
	want_err_has 'too slow.*try again later'
	at_most "milliseconds" $(($(now_ms) - began)) $((40000 * ${DEN_TEST_SLOW:-1}))
}

test_no_more_at_a_time_than_asked_for() {
	liar
	pull many:1 four
	is_whole four
	is "at a time" "$(grep -o '"most": [0-9]*' liar.log | sort -k2n | tail -n 1)" '"most": 4'
}

test_progress_is_a_line_a_second() {
	liar
	try fetch pull --plain-http --platform linux/amd64 "$REG/slow:1" dst
	want_rc 0
	want_err_has '^pulling 0/1 layers, 0\.[0-9] of 0\.1 MiB$'
	at_least "lines" "$(wc -l <<<"$err")" 1
	at_most "lines" "$(wc -l <<<"$err")" 4
	try fetch pull --plain-http --quiet --platform linux/amd64 "$REG/slow:1" quiet
	want_rc 0
	is stderr "$err" ""
}

test_basic_authentication() {
	local config
	# den, secret
	echo 'den:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a' >htpasswd
	config=$(printf 'http: {addr: "127.0.0.1:0"}\nauth: {htpasswd: {realm: x, path: "%s/htpasswd"}}' "$TMP")
	real_registry "$config"
	layout src
	put src a/b:1 --dest-creds den:secret
	try pull a/b:1 dst
	want_rc 5
	want_err_has 'user and a password.*--password-stdin'
	try pull a/b:1 dst --user den --password-stdin <<<wrong
	want_rc 5
	want_err_has 'does not know this user and password'
	try pull a/b:1 dst --user den --password-stdin <<<secret
	want_rc 0
	is_whole dst
	printf '{"auths":{"other.example":{"auth":"eDp5"},"%s":{"auth":"%s"}}}' "$REG" \
		"$(printf den:secret | base64)" >auth.json
	try pull a/b:1 dst2 --auth auth.json
	want_rc 0
	is_whole dst2
	echo '{"credsStore":"x"}' >auth.json
	try pull a/b:1 dst3 --auth auth.json
	want_rc 5
	want_err_has 'helper program'
	try fetch push --quiet --plain-http --user den --password-stdin dst "$REG/c/d:2" <<<secret
	want_rc 0
}

test_token_authentication() {
	liar
	try pull token:1 dst
	want_rc 5
	want_err_has 'no token to strangers.*--user'
	try pull token:1 dst --user den --password-stdin <<<wrong
	want_rc 5
	want_err_has 'does not know this user'
	try pull token:1 dst --user den --password-stdin <<<secret
	want_rc 0
	is_whole dst
	# the password goes to the token server alone
	is "password seen" "$(asked 'v2/.*Basic' liar.log)" 0
	# a token that was given, a refresh token, one that runs out on the way
	try pull token:1 dst2 --password-stdin <<<good-repository:token:pull
	want_rc 0
	try pull token:1 dst3 --password-stdin <<<bad
	want_rc 5
	want_err_has 'does not take this token'
	echo "{\"auths\":{\"$REG\":{\"auth\":\"eDp5\",\"identitytoken\":\"long-lived\"}}}" >auth.json
	try pull refresh:1 dst4 --auth auth.json
	want_rc 0
	is_whole dst4
	try pull again:1 dst5 --user den --password-stdin <<<secret
	want_rc 0
	is_whole dst5
}

test_authorization_stays_with_the_registry() {
	liar
	try pull redirect:1 dst --user den --password-stdin <<<secret
	want_rc 0
	is_whole dst
	is "asked at the other place" "$(asked '"GET".*"server": "store"' liar.log)" 1
	is "asked there with authorization" "$(asked '"auth": "[^"]*".*"server": "store"' liar.log)" 0
	at_least "asked at home with authorization" "$(asked '"auth": "Bearer [^"]*".*"server": "home"' liar.log)" 3
	# a place to send to that is elsewhere, none, or holds a password
	: >liar.log
	layout src
	try fetch push --quiet --plain-http --user den --password-stdin src "$REG/elsewhere:1" <<<secret
	[ "$rc" != 0 ] || fail "pushed to nowhere"
	at_least "sent to the other place" "$(asked '"PUT".*"server": "store"' liar.log)" 1
	is "with authorization" "$(asked '"auth": "[^"]*".*"server": "store"' liar.log)" 0
	for repo in file user junk; do
		try fetch push --quiet --plain-http src "$REG/$repo:1"
		[ "$rc" = 5 ] || [ "$rc" = 2 ] || fail "$repo: $(told)"
		want_err_has 'neither http nor https|which is not a URL'
	done
}

# A registry on another machine may not lead to this machine's own services. The other machine is an
# address in a network namespace.
test_a_registry_elsewhere_does_not_lead_to_this_machine() {
	need /usr/bin/python3 ip
	cat >inside <<-'END'
		set -eu
		ip link set lo up
		ip address add 192.0.2.7/32 dev lo
		LISTEN=192.0.2.7 $HELPER liar "$TMP/liar.log" >ports &
		trap 'kill $!' EXIT
		for i in $(seq 200); do [ -s ports ] && break; sleep 0.05; done
		read -r port other <ports
		"$FETCH" pull --plain-http --platform linux/amd64 "192.0.2.7:$port/redirect:1" a --user den --password-stdin <<<secret
		rc=0
		"$FETCH" pull --plain-http --platform linux/amd64 "192.0.2.7:$port/metadata:1" b || rc=$?
		echo "status $rc" >&2
		# and it is not spoken to without TLS unasked
		rc=0
		"$FETCH" pull --platform linux/amd64 "192.0.2.7:$port/good:1" c || rc=$?
		echo "then $rc" >&2
	END
	export FETCH HELPER
	unshare -Urn true 2>/dev/null || skip 'no network namespace can be made here'
	try unshare -Urn bash inside
	want_rc 0
	is_whole a
	want_err_has 'leads to an address of this machine'
	want_err_has 'status 5'
	want_err_has 'does not speak https.*--plain-http'
	want_err_has 'then 8'
}

test_certificates_are_checked() {
	need openssl
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test \
		-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
	liar cert.pem key.pem
	# a loopback name too: what speaks TLS is not asked without it
	try fetch pull --platform linux/amd64 "$REG/good:1" dst
	want_rc 5
	want_err_has 'not trusted.*--ca FILE'
	try fetch pull --platform linux/amd64 --ca cert.pem "$REG/good:1" dst
	want_rc 0
	is_whole dst
	try fetch pull --platform linux/amd64 --ca /nonexistent "$REG/good:1" dst
	want_rc 3
	# from https nothing leads to http: neither a blob nor a password
	try fetch pull --platform linux/amd64 --ca cert.pem --user den --password-stdin "$REG/redirect:1" dst2 <<<secret
	want_rc 5
	want_err_has 'from https to'
	is "asked at the other place" "$(asked '"server": "store"' liar.log)" 0
}

# Landlock: libcurl writes TLS keys to the file that SSLKEYLOGFILE names, if it can.
test_no_file_is_written_outside_the_layout_directory() {
	need openssl
	/usr/bin/python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)' ||
		skip 'this kernel has no Landlock'
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test \
		-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
	liar cert.pem key.pem
	SSLKEYLOGFILE=$PWD/dst/keys fetch pull --platform linux/amd64 --ca cert.pem "$REG/good:1" dst
	[ -s dst/keys ] || skip 'this libcurl does not know SSLKEYLOGFILE'
	SSLKEYLOGFILE=$PWD/keys fetch pull --platform linux/amd64 --ca cert.pem "$REG/good:1" dst2
	is_whole dst2
	[ ! -e keys ] || fail "a file was written outside"
}

test_push_gives_what_skopeo_reads() {
	local before
	real_registry
	layout src --layers 3000000,20000,20000 --seed 5
	proxy pass
	try fetch push --plain-http --quiet src "$REG/out/tool:3"
	want_rc 0
	want_out "$(json src/index.json manifests 0 digest)"
	skopeo --insecure-policy copy -q --src-tls-verify=false "docker://$REG/out/tool:3" oci:back:latest
	diff -r src/blobs back/blobs
	is "digest" "$(skopeo inspect --tls-verify=false --format '{{.Digest}}' "docker://$REG/out/tool:3")" "$out"
	# what is there is not sent again
	before=$(asked '"(POST|PATCH)"')
	try fetch push --plain-http --quiet src "$REG/out/tool:4"
	want_rc 0
	is "uploads" "$(asked '"(POST|PATCH)"')" "$before"
	# and the way back
	pull out/tool:4 dst
	is_whole dst
	# a damaged layout directory is not pushed
	printf x | dd of="$(find src/blobs -size +1000k)" bs=1 seek=500 conv=notrunc status=none
	try fetch push --plain-http --quiet src "$REG/out/other:1"
	want_rc 4
	want_err_has 'another digest.*damaged'
	try skopeo inspect --tls-verify=false "docker://$REG/out/other:1"
	[ "$rc" != 0 ] || fail "half an image is there"
	try fetch push --plain-http --quiet /etc "$REG/out/other:1"
	want_rc 3
}

#@ root timeout=120
test_a_big_blob_goes_in_pieces() {
	real_registry
	/usr/bin/python3 - <<-'END'
		import hashlib, json, os
		os.makedirs("src/blobs/sha256")
		def put(data, media):
		    d = hashlib.sha256(data).hexdigest()
		    open("src/blobs/sha256/" + d, "wb").write(data)
		    return {"mediaType": media, "digest": "sha256:" + d, "size": len(data)}
		o = "application/vnd.oci.image."
		layer = put(bytes(70 << 20), o + "layer.v1.tar")
		config = put(b'{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["%s"]}}'
		             % layer["digest"].encode(), o + "config.v1+json")
		m = put(json.dumps({"schemaVersion": 2, "config": config, "layers": [layer]}).encode(), o + "manifest.v1+json")
		json.dump({"schemaVersion": 2, "manifests": [m]}, open("src/index.json", "w"))
		open("src/oci-layout", "w").write('{"imageLayoutVersion":"1.0.0"}')
	END
	proxy pass
	try fetch push --plain-http --quiet src "$REG/big:1"
	want_rc 0
	is "pieces" "$(asked '"PATCH"')" 3
	is "bytes" "$(grep '"PATCH"' proxy.log | grep -o '"bytes": [0-9]*' | awk '{ s += $2 } END { print s }')" 73400320
	pull big:1 dst
	is_whole dst
	diff -r src/blobs dst/blobs
}

test_an_index_is_chosen_from_by_platform() {
	local d
	real_registry
	layout src --arch amd64,arm64,s390x --layers 5000
	put src a/multi:1 --all
	for arch in amd64 arm64 s390x; do
		try fetch pull --plain-http --platform "linux/$arch" "$REG/a/multi:1" "$arch"
		want_rc 0
		is_whole "$arch"
		is platform "$(json "$arch/index.json" manifests 0 platform architecture)" "$arch"
		d=$(json "$arch/blobs/sha256/${out#sha256:}" config digest)
		is config "$(json "$arch/blobs/sha256/${d#sha256:}" architecture)" "$arch"
	done
	try fetch pull --plain-http --platform linux/riscv64 "$REG/a/multi:1" none
	want_rc 3
	want_err_has 'no image for linux/riscv64.*linux/amd64, linux/arm64, linux/s390x'
	# one that stands alone and is for another machine
	layout arm --arch arm64
	put arm a/arm:1
	try pull a/arm:1 none
	want_rc 3
	want_err_has 'is for linux/arm64, not for linux/amd64.*--platform linux/arm64'
	has_no_image none
	try fetch pull --platform amd64 "$REG/a/multi:1" none
	want_rc 2
	want_err_has 'linux/amd64'
}

test_one_at_a_time_in_a_directory() {
	liar
	"$FETCH" pull --plain-http --platform linux/amd64 --quiet "$REG/slow:1" dst &
	soon 10 test -d dst/blobs/sha256
	try pull good:1 dst
	want_rc 4
	want_err_has 'another process works in'
	wait $!
	is_whole dst
	# nothing that was planted there is followed
	mkdir -p trap/blobs away
	ln -s ../../away trap/blobs/sha256
	try pull good:1 trap
	[ "$rc" != 0 ] || fail "a link was followed"
	is "files elsewhere" "$(find away -type f | wc -l)" 0
}

# What other tools push: docker's own formats, one image alone and a list of several.
test_docker_s_own_formats_are_taken() {
	local arch d
	real_registry
	layout src --arch amd64,arm64 --layers 5000,3000
	put src a/list:1 --all --format v2s2
	is "type of the list" "$(skopeo inspect --raw --tls-verify=false "docker://$REG/a/list:1" >raw &&
		json raw mediaType)" application/vnd.docker.distribution.manifest.list.v2+json
	for arch in amd64 arm64; do
		try fetch pull --plain-http --platform "linux/$arch" "$REG/a/list:1" "$arch"
		want_rc 0
		is_whole "$arch"
		is "type of the image" "$(json "$arch/blobs/sha256/${out#sha256:}" mediaType)" \
			application/vnd.docker.distribution.manifest.v2+json
		d=$(json "$arch/blobs/sha256/${out#sha256:}" config digest)
		is config "$(json "$arch/blobs/sha256/${d#sha256:}" architecture)" "$arch"
	done
	try fetch pull --plain-http --platform linux/s390x "$REG/a/list:1" none
	want_rc 3
	want_err_has 'linux/amd64, linux/arm64'
	# the list by its digest, and one image by its own
	d=sha256:$(sum raw)
	try fetch pull --plain-http --platform linux/arm64 "$REG/a/list@$d" by-list
	want_rc 0
	is_whole by-list
	d=$(json raw manifests 0 digest)
	try pull "a/list@$d" by-image
	want_rc 0
	want_out "$d"
	# and back: what is pushed again is the same image
	try fetch push --quiet --plain-http by-image "$REG/a/again:1"
	want_rc 0
	want_out "$d"
}

# secure_registry: one with TLS and a password (den, secret); sets REG
secure_registry() {
	need openssl
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test \
		-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
	echo 'den:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a' >htpasswd
	real_registry "$(printf 'http: {addr: "127.0.0.1:0", tls: {certificate: "%s", key: "%s"}}
auth: {htpasswd: {realm: x, path: "%s"}}' "$TMP/cert.pem" "$TMP/key.pem" "$TMP/htpasswd")"
}

# A root file system as an image in a layout directory, for this machine.
image_root() {
	mkdir -p root/etc
	echo 'from the registry' >root/etc/origin
	tar -C root -cf root.tar .
	den template import --name made root.tar
}

#@ root user range timeout=120
test_templates_go_to_a_registry_with_tls_and_a_password_and_back() {
	local id
	export XDG_CACHE_HOME=$TMP/cache
	secure_registry
	image_root
	try den template push --ca cert.pem made "$REG/team/app:1"
	want_rc 5
	want_err_has 'user and a password.*--password-stdin'
	try den template push --user den --password-stdin made "$REG/team/app:1" <<<secret
	want_rc 5
	want_err_has 'not trusted.*--ca FILE'
	try den template push --ca cert.pem --user den --password-stdin made "$REG/team/app:1" <<<secret
	want_rc 0
	is "what is left behind" "$(find cache -mindepth 2 | wc -l)" 0
	den template rm made
	try den template pull --ca cert.pem "$REG/team/app:1"
	want_rc 5
	try den template pull --ca cert.pem --user den --password-stdin "$REG/team/app:1" <<<wrong
	want_rc 5
	want_err_has 'does not know this user and password'
	try den template pull --ca cert.pem --user den --password-stdin "$REG/team/app:1" <<<secret
	want_rc 0
	id=$out
	[ "${#id}" = 64 ] || fail "no id: $id"
	is "what is left behind" "$(find cache -mindepth 2 | wc -l)" 0
	den create --template "$REG/team/app:1" --name b
	is origin "$(den fs cat b /etc/origin)" "from the registry"
	den rm --force b
	# a file with credentials, as podman and docker write it: by host, by repository, for another one
	printf '{"auths":{"%s":{"auth":"%s"}}}' "$REG" "$(printf den:secret | base64)" >auth.json
	try den template pull --ca cert.pem --auth auth.json --name two "$REG/team/app:1"
	want_rc 0
	want_out "$id"
	printf '{"auths":{"%s":{"auth":"%s"},"%s/team":{"auth":"%s"},"%s/team/other":{"auth":"%s"}}}' \
		"$REG" "$(printf den:wrong | base64)" "$REG" "$(printf den:secret | base64)" \
		"$REG" "$(printf den:wrong | base64)" >auth.json
	try den template pull --ca cert.pem --auth auth.json --name three "$REG/team/app:1"
	want_rc 0
	printf '{"auths":{"https://%s/v2/":{"auth":"%s"}}}' "$REG" "$(printf den:secret | base64)" >auth.json
	try den template pull --ca cert.pem --auth auth.json --name four "$REG/team/app:1"
	want_rc 0
	printf '{"auths":{"%s/team/other":{"auth":"%s"}}}' "$REG" "$(printf den:secret | base64)" >auth.json
	try den template pull --ca cert.pem --auth auth.json --name five "$REG/team/app:1"
	want_rc 5
	want_err_has 'user and a password'
	# files that are not there, or are none
	try den template pull --ca cert.pem --auth nosuch.json "$REG/team/app:1"
	want_rc 3
	want_err_has nosuch.json
	try den template pull --ca htpasswd "$REG/team/app:1"
	want_rc 2
	want_err_has 'htpasswd'
	no_boxes
}

#@ root
test_root_is_given_up_before_the_network() {
	local p
	liar
	mkdir dst
	chown 1000:1000 dst
	"$FETCH" pull --plain-http --drop 1000:1000 --platform linux/amd64 --quiet "$REG/slow:1" dst &
	p=$!
	soon 10 test -d dst/blobs/sha256
	soon 10 grep -Pq 'Uid:\t1000\t1000\t1000\t1000' /proc/$p/status || fail "not user 1000"
	grep -Pq 'Gid:\t1000\t1000\t1000\t1000' /proc/$p/status
	grep -Pq 'Groups:\t ?$' /proc/$p/status || fail "$(grep Groups /proc/$p/status)"
	grep -Pq 'CapEff:\t0+$' /proc/$p/status
	soon 5 grep -Pq 'NoNewPrivs:\t1' /proc/$p/status
	grep -Eq 'Max core file size +0 +0 ' /proc/$p/limits
	grep -Eq 'Max open files +256 +256 ' /proc/$p/limits
	grep -q _asan_ "$FETCH" || grep -Eq 'Max address space +1073741824 ' /proc/$p/limits
	wait $p
	is_whole dst
	is "owner" "$(find dst ! -uid 1000 | wc -l)" 0
	try fetch pull --plain-http --drop 0:0 "$REG/good:1" dst2
	want_rc 2
}

test_wrong_calls_are_told() {
	local ref
	need
	for ref in debian debian:12 https://registry.example/a UPPER.example/A /a a/ localhost:0/a localhost:99999/a \
		localhost/../a localhost/a//b localhost/a: localhost/a:-x localhost/a@sha256:12 'localhost/a b' \
		'localhost/a?x' localhost/a%2e 'user@registry.example/a' '[::1/a' '[x]:5/a' localhost/a__.b \
		.example/a registry..example/a "localhost/$(printf 'a%.0s' $(seq 300))"; do
		try fetch pull "$ref" dst
		[ "$rc" = 2 ] || fail "'$ref' was taken: $(told)"
		want_err_has 'HOST\[:PORT\]/NAME|digest'
		[ ! -e dst ] || fail "'$ref' made a directory"
	done
	try fetch pull localhost:1/a
	want_rc 2
	try fetch pull --user x localhost:1/a dst
	want_rc 2
	want_err_has 'password-stdin'
	try fetch pull --jobs 99 localhost:1/a dst
	want_rc 2
	try fetch pull --nonsense localhost:1/a dst
	want_rc 2
	want_err_has "'--nonsense' is not an option"
	try fetch pull -x localhost:1/a dst
	want_rc 2
	want_err_has "'-x' is not an option"
	try fetch pull localhost:1/a dst --jobs
	want_rc 2
	want_err_has "'--jobs' wants a value"
	try fetch pull --plain-http 127.0.0.1:1/a dst
	want_rc 3
	want_err_has 'nothing answers at 127.0.0.1 port 1'
	try fetch pull nonexistent.invalid/a dst
	want_rc 3
	want_err_has "no host 'nonexistent.invalid'"
}
