# Templates: images in and out, builds, and archives that lie.

# A root file system whose only program is one that needs no libraries.
root_make() {
	mkdir -p "$1/etc" "$1/bin" "$1/tmp"
	echo "from $1" >"$1/etc/origin"
	echo 'root:x:0:0:root:/:/bin/sh' >"$1/etc/passwd"
	if [ -x /bin/busybox ]; then
		cp /bin/busybox "$1/bin/sh"
	fi
}

# image_make FILE [WHAT]: an OCI archive, with something wrong in it where WHAT says so
image_make() {
	/usr/bin/python3 - "$@" <<'PY'
import gzip, hashlib, io, json, sys, tarfile
path, what = sys.argv[1], (sys.argv + ["ok"])[2]
files = {}
def digest(b): return "sha256:" + hashlib.sha256(b).hexdigest()
def blob(b, media):
    files["blobs/sha256/" + digest(b)[7:]] = b
    return {"mediaType": media, "digest": digest(b), "size": len(b)}
def layer(entries):
    f = io.BytesIO()
    t = tarfile.open(fileobj=f, mode="w")
    for name, data in entries:
        i = tarfile.TarInfo(name)
        if data is None:
            i.type, i.mode = tarfile.DIRTYPE, 0o755
            t.addfile(i)
        elif isinstance(data, str):
            i.type, i.linkname = tarfile.SYMTYPE, data
            t.addfile(i)
        else:
            i.size = len(data)
            t.addfile(i, io.BytesIO(data))
    t.close()
    return f.getvalue()
unique = what.encode()
layers = [layer([("etc", None), ("etc/one", b"1" + unique), ("etc/two", b"2"), ("d", None), ("d/low", b"low")]),
          layer([("etc", None), ("etc/.wh.two", b""), ("d", None), ("d/.wh..wh..opq", b""), ("d/high", b"high"), ("d/of", unique)])]
if what == "dotdot": layers[1] = layer([("../../../escaped", b"x")])
if what == "link": layers[1] = layer([("x", "/tmp"), ("x/escaped", b"x")])
media = "application/vnd.oci.image.layer.v1.tar+gzip"
packed = [gzip.compress(l, mtime=0) for l in layers]
descs = [blob(p, media) for p in packed]
config = {"os": "linux", "config": {"Env": ["COLOR=blue"], "WorkingDir": "/d", "Entrypoint": ["/bin/sh"], "Cmd": ["-c", "x"]},
          "rootfs": {"type": "layers", "diff_ids": [digest(l) for l in layers]}}
if what == "diffid": config["rootfs"]["diff_ids"][1] = "sha256:" + "0" * 64
if what == "missing": del files["blobs/sha256/" + descs[1]["digest"][7:]]
if what == "digest":
    k = "blobs/sha256/" + descs[1]["digest"][7:]
    files[k] = files[k][:-1] + bytes([files[k][-1] ^ 1])
if what == "foreign": descs[1]["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
if what == "media": descs[1]["mediaType"] = "text/plain"
if what == "size": descs[1]["size"] += 1
if what == "many": descs *= 61
m = blob(json.dumps({"schemaVersion": 2, "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
                     "layers": descs}).encode(), "application/vnd.oci.image.manifest.v1+json")
m["annotations"] = {"org.opencontainers.image.ref.name": "test/" + what + ":1"}
if what == "arch": m["platform"] = {"os": "linux", "architecture": "pdp11"}
files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [m]}).encode()
if what == "deep": files["index.json"] = b"[" * 100000
files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
t = tarfile.open(path, "w")
for name, data in files.items():
    i = tarfile.TarInfo(name)
    i.size = len(data)
    t.addfile(i, io.BytesIO(data))
t.close()
PY
}

# names_in TEMPLATE: of the files that image_make() makes, as a box of it sees them
names_in() {
	"$DEN" create --template "$1" >id
	"$DEN" fs ls --recursive --quiet "$(cat id)" /etc
	"$DEN" fs ls --recursive --quiet "$(cat id)" /d
	"$DEN" rm --force "$(cat id)"
}

no_template() {
	not den template inspect "$1" >/dev/null 2>&1
}

#@ root user range timeout=120
test_a_root_file_system_becomes_a_template() {
	local z
	root_make r
	tar -C r -cf r.tar .
	gzip -k r.tar
	if command -v xz >/dev/null; then
		xz -k r.tar
	fi
	for z in r.tar r.tar.*; do
		try den template import --name "t-${z##*.}" "$z"
		want_rc 0
		[ "${#out}" = 64 ] || fail "no id: $out"
	done
	den create --template t-gz --name b
	is origin "$(den fs cat b /etc/origin)" "from r"
	# the same files are the same template, however they were packed
	is ids "$(den template inspect --json t-gz | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["layers"])')" \
		"$(den template inspect --json t-tar | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["layers"])')"
	try den template import r.tar
	want_err_has 'imported as r$'
	den template import --name piped - <r.tar.gz
	cat r.tar | "$DEN" template import --name piped2 -
	den template ls --json | is_json
	den template verify t-gz
}

#@ root user range timeout=120
test_an_image_gives_layers_whiteouts_and_defaults() {
	image_make i.tar
	den template import i.tar
	den template inspect --json test/ok:1 >j
	is_json <j
	grep -q '"COLOR=blue"' j
	grep -q '"workdir":"/d"' j
	names_in test/ok:1 >names
	grep -q one names
	not grep -q two names
	not grep -q low names
	grep -q high names
	not grep -q '[.]wh[.]' names
	# layers that are here are not unpacked again, and give the same template
	is id "$(den template import --name again i.tar)" "$(den template inspect --json test/ok:1 |
		/usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["id"])')"
	# as a directory, and compressed
	mkdir lay
	tar -C lay -xf i.tar
	den template import --name lay lay
	gzip -c i.tar | "$DEN" template import --name gz -
}

#@ root user timeout=180
test_images_that_lie_are_refused_and_leave_nothing() {
	local what code
	for what in diffid:4 missing:2 digest:4 foreign:8 media:2 size:4 many:6 arch:3 deep:6 dotdot:5 link:5; do
		code=${what#*:}
		what=${what%:*}
		image_make "$what.tar" "$what"
		try den template import --name "bad-$what" "$what.tar"
		[ "$rc" = "$code" ] || fail "$what: status $rc, not $code: $err"
		[ -n "$err" ] || fail "$what: no message"
		no_template "bad-$what" || fail "$what: a template stayed"
		no_boxes || fail "$what: a box stayed"
	done
	[ ! -e /tmp/escaped ] || fail "a layer was unpacked outside"
}

#@ root user
test_archives_that_are_none_are_refused() {
	local n
	head -c 5000 /dev/urandom >random
	: >empty
	root_make r
	tar -C r -cf r.tar .
	gzip -k r.tar
	head -c $(($(wc -c <r.tar.gz) / 2)) r.tar.gz >cut.tar.gz
	head -c 700 r.tar >cut.tar
	printf 'BZh91AY&SY0123456789' >b.bz2
	mkdir plain
	for n in random empty cut.tar.gz cut.tar b.bz2 plain nothere; do
		try den template import --name bad "$n"
		[ "$rc" -ge 2 ] && [ "$rc" -le 8 ] || fail "$n: status $rc: $err"
		no_template bad || fail "$n became a template"
	done
	no_boxes
}

#@ root user
test_an_archive_bomb_stops_at_the_limit() {
	mkdir -p b/etc
	truncate -s 300M b/etc/zero
	tar -C b -c . | gzip >bomb.tar.gz
	at_most "size of the archive" "$(wc -c <bomb.tar.gz)" 2000000
	try den template import --name bomb --max-size 10M bomb.tar.gz
	want_rc 6
	want_err_has '10.0 MiB'
	no_template bomb
	no_boxes
}

#@ root user range timeout=120
test_what_is_exported_can_be_imported() {
	local f
	image_make i.tar
	den template import --name app i.tar
	den template export app a.tar
	den template export app - >b.tar
	cmp a.tar b.tar || fail "not the same bytes"
	den template export --compress zstd app z.tar
	den template export --compress none app lay/
	den template export --ref other app lay/
	den template export --docker app d.tar
	for f in a.tar z.tar d.tar; do
		den template import --name back "$f"
		names_in back >n
		grep -q high n || fail "$f"
		not grep -q two n
	done
	try den template import --name back lay
	want_rc 2
	want_err_has -- --ref
	den template import --name back --ref other lay
	den template inspect back | grep -q COLOR=blue
	# a file that cannot be written is not there, not even a part
	try den template export app /proc/nothing/x
	[ $rc != 0 ]
	try den template export nosuch x.tar
	want_rc 3
	[ ! -e x.tar ]
}

#@ root timeout=120
test_other_tools_take_what_is_exported() {
	command -v skopeo >/dev/null || skip "skopeo is not installed"
	image_make i.tar
	den template import --name app i.tar
	den template export app a.tar
	den template export --docker app d.tar
	skopeo copy -q --insecure-policy oci-archive:a.tar oci:l:x
	skopeo copy -q --insecure-policy docker-archive:d.tar oci:l:y
	skopeo copy -q --insecure-policy oci:l:x docker-archive:back.tar:app:2
	skopeo inspect oci-archive:a.tar | grep -q COLOR=blue
	den template import --name two back.tar
	names_in two | grep -q high
	den template import --ref y --name three l
	if command -v umoci >/dev/null; then
		umoci unpack --image l:x bundle
		[ -f bundle/rootfs/d/high ] && [ ! -e bundle/rootfs/etc/two ] || fail "umoci reads it otherwise"
	fi
}

#@ root user range timeout=180
test_a_build_runs_its_steps() {
	mkdir -p ctx/sub
	echo one >ctx/a.txt
	echo two >ctx/sub/b.txt
	ln -s a.txt ctx/link
	echo s3cret >ctx/no.key
	echo '*.key' >ctx/.dockerignore
	cat >ctx/Dockerfile <<'EOF'
ARG BASE=host
FROM ${BASE} AS first
ENV WORD="hello world"
WORKDIR /job/dir
RUN echo "$WORD in $(pwd)" >out
RUN <<X
echo from a heredoc >doc
X
COPY . /src/
COPY --chmod=0750 --chown=1:2 a.txt /etc/copied
RUN [ "$(stat -c '%u:%g %a' /etc/copied)" = "OWNER 750" ] && [ -L /src/link ] && [ ! -e /src/no.key ]
FROM scratch
COPY --from=first /job/dir /data
COPY --from=0 /src/*.txt /txt/
COPY <<Y /data/written
x is ${X:-unset}
Y
ARG UNUSED
LABEL a=b
EXPOSE 80
USER 7
ENV A=1 B="two words"
ENTRYPOINT ["/bin/e"]
CMD ["c"]
EOF
	# a user without subordinate ids has but one in his boxes
	case $VARIANT in
	user) sed -i 's/OWNER/0:0/' ctx/Dockerfile ;;
	*) sed -i 's/OWNER/1:2/' ctx/Dockerfile ;;
	esac
	try den template build -t built ctx
	want_rc 0
	den create --template built --name b
	is out "$(den fs cat b /data/out)" "hello world in /job/dir"
	is doc "$(den fs cat b /data/doc)" "from a heredoc"
	is copied "$(den fs cat b /txt/a.txt)" one
	is written "$(den fs cat b /data/written)" "x is unset"
	den rm --force b
	den template inspect --json built >j
	grep -q '"B=two words"' j
	grep -q '"user":"7"' j
	grep -q '"entrypoint":\["/bin/e"\]' j
	grep -q '"80/tcp"' j
	no_boxes
}

#@ root user timeout=180
test_a_build_is_cached_by_what_goes_in() {
	local one t1 t2
	mkdir ctx
	echo one >ctx/f
	printf 'FROM host\nRUN date +%%s%%N >/time\nCOPY f /f\nRUN date +%%s%%N >/time2\n' >ctx/Dockerfile
	one=$(den template build -t c ctx)
	touch ctx/f
	is "second build" "$(den template build -t c ctx)" "$one"
	try den template build -t c ctx
	want_err_has 'as before'
	den create --template c --name x
	t1=$(den fs cat x /time)
	t2=$(den fs cat x /time2)
	echo two >ctx/f
	den template build -t c2 ctx
	den create --template c2 --name y
	is "step before the change" "$(den fs cat y /time)" "$t1"
	[ "$(den fs cat y /time2)" != "$t2" ] || fail "a step after a changed file was not run again"
	is copied "$(den fs cat y /f)" two
	den template build --no-cache -t c3 ctx
	den create --template c3 --name z
	[ "$(den fs cat z /time)" != "$t1" ] || fail "--no-cache took it from the cache"
	not grep -q cache/ <<<"$(den template ls)"
	grep -q cache/ <<<"$(den template ls --all)"
	den template rm --cache
	not grep -q cache/ <<<"$(den template ls --all)"
	den rm --force x y z
}

#@ root user timeout=120
test_a_build_that_fails_says_where_and_leaves_nothing() {
	mkdir ctx
	printf 'FROM host\n\nRUN echo seen; exit 3\n' >ctx/Dockerfile
	try den template build -t f ctx
	want_rc 4
	want_err_has 'line 3: RUN: .*status 3'
	want_err_has seen
	no_template f
	no_boxes
	printf 'FROM host\nCPOY a b\n' >ctx/Dockerfile
	try den template build ctx
	want_rc 2
	want_err_has 'line 2: .*did you mean COPY'
	printf 'FROM nosuch:1\n' >ctx/Dockerfile
	try den template build ctx
	want_rc 3
	want_err_has 'den template pull nosuch:1'
	printf 'FROM host\nADD https://example.org/x /x\n' >ctx/Dockerfile
	try den template build ctx
	want_rc 8
	want_err_has 'no network'
	printf 'FROM host\nCOPY nothere /x\n' >ctx/Dockerfile
	try den template build ctx
	want_rc 3
	no_boxes
}

#@ root user
test_a_build_copies_nothing_from_outside() {
	local n=0 line
	mkdir -p ctx/d
	echo outside >secret
	ln -s ../secret ctx/up
	ln -s /etc ctx/etc
	ln -s ../../secret ctx/d/deep
	while read -r line; do
		printf 'FROM scratch\n%s\n' "$line" >ctx/Dockerfile
		try den template build -t leak ctx
		want_rc 5
		n=$((n + 1))
	done <<'EOF'
COPY ../secret /x
COPY up /x
COPY etc/passwd /x
COPY d/../../secret /x
COPY u* /x
EOF
	is tried $n 5
	printf 'FROM scratch\nCOPY d /d\n' >ctx/Dockerfile
	den template build -t links ctx
	den create --template links --name b
	den fs stat --json --no-follow b /d/deep | grep -q '"target":"../../secret"'
}

#@ root user
test_add_unpacks_archives_only() {
	mkdir -p ctx/in/dir
	echo inner >ctx/in/dir/f
	tar -C ctx/in -czf ctx/a.tgz .
	gzip -c ctx/in/dir/f >ctx/f.gz
	printf 'FROM scratch\nADD a.tgz /un/\nADD f.gz /un/\nCOPY a.tgz /raw/\n' >ctx/Dockerfile
	den template build -t add ctx
	den create --template add --name b
	is inner "$(den fs cat b /un/dir/f)" inner
	den fs stat b /un/f.gz >/dev/null
	den fs stat b /raw/a.tgz >/dev/null
}

#@ root user
test_an_interrupted_build_takes_its_box_along() {
	local p
	mkdir ctx
	printf 'FROM host\nRUN echo ready; sleep 1000\n' >ctx/Dockerfile
	# a shell's "&" lets a program ignore INT, so it is TERM here
	"$DEN" template build -t slow ctx >o 2>e &
	p=$!
	soon 30 grep -qx ready e
	kill -TERM $p
	rc=0
	wait $p || rc=$?
	is status $rc 143
	no_boxes || fail "the box stayed: $(boxes)"
	no_template slow
}

#@ root user timeout=120
test_a_template_is_made_from_a_box() {
	local b
	b=$(den create --name src --env COLOR=red)
	den exec --workdir / src -- sh -c 'mkdir -p /srv/app; echo kept >/srv/app/f'
	den template create mine --from src --workdir /srv/app
	den exec src -- sh -c 'echo changed >/srv/app/f'
	try den run --template mine -- cat f
	want_rc 0
	want_out kept
	try den run --template mine -- sh -c 'echo $COLOR; pwd'
	want_out "$(printf 'red\n/srv/app')"
	den template create started --from src -- sh -c 'cat /srv/app/f; exit 9'
	try den run --template started
	want_rc 9
	want_out changed
	try den template create x
	want_rc 2
	try den template create x --from nosuch
	want_rc 3
	den template tag mine other
	den template rm mine
	try den run --template other -- cat f
	want_out kept
	try den template rm mine
	want_rc 3
	try den template rm host
	[ $rc != 0 ] || fail "host can be removed"
	den rm --force "$b"
}

#@ root user
test_template_verbs_explain_themselves() {
	local v
	for v in ls inspect create build debian import export pull push tag rm verify; do
		try den template $v --help
		want_rc 0
		want_out_has "den template $v"
		want_out_has Examples
	done
	try den template improt x
	want_rc 2
	want_err_has "did you mean 'den template import'"
	try den template pull --user me registry.invalid/x
	want_rc 2
	want_err_has password-stdin
	try den template export --compress lzma a b
	want_rc 2
	try den template debian --variant minbsae
	want_rc 2
	want_err_has minbase
	try den template debian 'x; rm -rf /'
	want_rc 2
}

# The machine's own apt settings, which only this test sees: a mirror that is nowhere, behind a proxy.
#@ root
test_debian_templates_come_the_way_that_the_machine_s_packages_do() {
	local port
	command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
	cp -a /etc/apt etc-apt
	rm -rf etc-apt/sources.list etc-apt/sources.list.d/*
	cat >etc-apt/sources.list.d/m.sources <<-'END'
		Types: deb
		URIs: http://mirror.invalid/debian
		Suites: own own-updates
		Components: main contrib
		Signed-By: /nowhere/keyring.gpg

		Types: deb
		URIs: http://mirror.invalid/security
		Suites: own-security
		Components: main
	END
	sed "s/^VERSION_CODENAME=.*/VERSION_CODENAME=own/" /etc/os-release >os-release
	/usr/bin/python3 -c '
import http.server, sys
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers.get("Authorization"), file=sys.stderr, flush=True)
        self.send_error(404)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Proxy)
print(server.server_port, flush=True)
server.serve_forever()' >port 2>asked &
	soon 10 test -s port
	port=$(cat port)
	echo "Acquire::http::Proxy \"http://127.0.0.1:$port\";" >etc-apt/apt.conf.d/01proxy
	mkdir -p etc-apt/auth.conf.d
	echo 'machine http://mirror.invalid login me password secret' >etc-apt/auth.conf.d/mirror.conf
	try unshare -m --propagation private sh -c 'mount --bind etc-apt /etc/apt &&
		mount --bind os-release "$(readlink -f /etc/os-release)" && exec "$@"' \
		sh "$DEN" template debian next --variant apt
	[ "$rc" != 0 ] || fail "made from a mirror that has nothing"
	want_err_has 'mmdebstrap'
	grep -q '^http://mirror.invalid/debian/dists/next/InRelease Basic bWU6c2VjcmV0$' asked ||
		fail "asked: $(cat asked)"
	grep -q '^http://mirror.invalid/debian/dists/next-updates/InRelease' asked
	grep -q '^http://mirror.invalid/security/dists/next-security/InRelease' asked
	no_template debian:next
	no_boxes
	# a suite that the machine's sources say nothing of
	try den template debian 'no/such'
	want_rc 2
}

#@ user
test_debian_templates_say_what_an_ordinary_user_lacks() {
	command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
	[ ! -s /etc/subuid ] || skip "this user has subordinate ids"
	try den template debian --variant apt
	[ "$rc" != 0 ] || fail "made without ids"
	want_err_has '/etc/subuid'
	no_boxes
}
