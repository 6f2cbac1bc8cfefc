# Generators of random numbers that programs keep in their memory, after they were restored or forked: --reseed.

PY=/usr/bin/python3

# generators BOX [HOW]: a program that has used each generator that it knows, and uses them again whenever it is told to
# (go). HOW "seeded": with a seed of its own.
generators() {
	cat >"$TMP/generators.py" <<'END'
import os, queue, random, ssl, sys, threading, time
known = {"random": lambda: random.random(), "bits": lambda: random.getrandbits(64), "gauss": lambda: random.gauss(0, 1),
         "ssl": lambda: ssl.RAND_bytes(8).hex()}
ask, answer = queue.Queue(), queue.Queue()
def thread():
    while ask.get():
        answer.put(ssl.RAND_bytes(8).hex())
threading.Thread(target=thread, daemon=True).start()
known["thread"] = lambda: (ask.put(1), answer.get())[1]
try:
    import numpy.random
    known["numpy"] = lambda: numpy.random.rand()
except ImportError:
    numpy = None
if len(sys.argv) > 1:
    random.seed(1)
    numpy and numpy.random.seed(1)
for f in known.values():
    f()
open("/up", "w").close()
while True:
    if os.path.exists("/go"):
        numbers = "".join("%s %s\n" % (name, f()) for name, f in known.items())
        with open("/numbers.new", "w") as out:
            out.write(numbers)
        os.unlink("/go")
        os.rename("/numbers.new", "/numbers")
    time.sleep(0.05)
END
	den exec "$1" -- sh -c "cat >/generators.py" <"$TMP/generators.py"
	den exec --detach "$1" -- "$PY" /generators.py "${@:2}" >/dev/null
	soon 30 den exec "$1" -- test -e /up || fail "the program did not start"
}

# go BOX...: each uses its generators once; what they gave is in $TMP/BOX
go() {
	local b
	for b; do
		den exec "$b" -- sh -c 'rm -f /numbers; touch /go'
		soon 30 den exec "$b" -- test -e /numbers || fail "no numbers in $b"
		den exec "$b" -- cat /numbers >"$TMP/$b"
	done
}

# differ NAMES BOX...: how many different numbers there are of each
differ() {
	local name b
	for name in $1; do
		for b in "${@:2}"; do
			grep "^$name " "$TMP/$b" || fail "no number of $name in $b"
		done | sort -u | wc -l
	done | sort -u | tr '\n' ' '
}

# What this machine's python has.
names() {
	echo "random bits gauss ssl thread $("$PY" -c 'import numpy; print("numpy")' 2>/dev/null)"
}

#@ root timeout=120
test_generators_are_restarted_in_forks() {
	local b f g h
	can_save
	b=$(box --reseed --history manual)
	generators "$b"
	f=($(den fork --full --count 2 "$b"))
	is "forks" ${#f[@]} 2
	go "$b" "${f[@]}"
	is "different numbers in a box and two forks" "$(differ "$(names)" "$b" "${f[@]}")" "3 "
	# a fork that has used them since is forked, and comes back from disk
	g=$(den fork --full "${f[0]}")
	h=$(den fork --full "${f[0]}")
	timeout 60 "$DEN" pause --disk "$h" >/dev/null
	go "${f[0]}" "$g" "$h"
	is "different numbers in a fork and its forks" "$(differ "$(names)" "${f[0]}" "$g" "$h")" "3 "
	is "told of the fork" "$(field "$g" reseed)" True
	den rm --force "$b" "${f[@]}" "$g" "$h"
}

# The same program: what it is all for, and that the test above can fail.
#@ root timeout=90
test_without_it_forks_have_the_same_numbers() {
	local b f
	can_save
	b=$(box --history manual)
	generators "$b"
	f=($(den fork --full --count 2 "$b"))
	go "$b" "${f[@]}"
	is "different numbers" "$(differ "$(names)" "$b" "${f[@]}")" "1 "
	den rm --force "$b" "${f[@]}"
}

#@ root timeout=90
test_a_seed_of_the_programs_own_is_kept() {
	local b f
	can_save
	b=$(box --reseed --history manual)
	generators "$b" seeded
	f=$(den fork --full "$b")
	go "$b" "$f"
	is "seeded ones" "$(differ "random bits gauss" "$b" "$f")" "1 "
	case $(names) in *numpy) is "numpy's" "$(differ numpy "$b" "$f")" "1 " ;; esac
	is "OpenSSL, which has no seed" "$(differ "ssl thread" "$b" "$f")" "2 "
	# and it is the sequence that the seed stands for
	is "the number" "$(sed -n 's/^random //p' "$TMP/$f")" "$("$PY" -c '
import random
random.seed(1)
random.random(), random.getrandbits(64), random.gauss(0, 1)
print(random.random())')"
	den rm --force "$b" "$f"
}

#@ root user
test_the_environment_is_there_where_it_was_asked_for() {
	local b
	b=$(box)
	is "not asked" "$(den exec "$b" -- sh -c 'env | grep -cE "^(LD_PRELOAD|PYTHONPATH)="; ls /run/den' | grep -v '^generation$' | grep -E '^[1-9]|reseed|python')" ""
	is "told" "$(field "$b" reseed)" False
	b=$(box --reseed --env PYTHONPATH=/asked)
	is "told" "$(field "$b" reseed)" True
	is "preload" "$(den exec "$b" -- printenv LD_PRELOAD)" /run/den/reseed.so
	is "python" "$(den exec "$b" -- printenv PYTHONPATH)" /run/den/python:/asked
	is "preload, of the caller" "$(den exec --env LD_PRELOAD=libm.so.6 "$b" -- printenv LD_PRELOAD)" \
		libm.so.6:/run/den/reseed.so
	is "python, of the caller" "$(den exec --env PYTHONPATH=/a:/b "$b" -- printenv PYTHONPATH)" /run/den/python:/a:/b
	is "not twice" "$(den exec --env PYTHONPATH=/run/den/python "$b" -- printenv PYTHONPATH)" /run/den/python
	is "a throwaway box" "$(den run --reseed -- printenv LD_PRELOAD)" /run/den/reseed.so
	# programs that have no use for it notice nothing
	try den exec "$b" -- sh -c 'ls / >/dev/null && echo fine'
	is "output" "$out" fine
	is "errors" "$err" ""
	# it is loaded, and no file is: an image would need that very one
	is "loaded" "$(den exec "$b" -- "$PY" -c 'import ctypes; print(bool(ctypes.CDLL(None).RAND_bytes))')" True
	is "files" "$(den exec "$b" -- sh -c 'grep reseed /proc/self/maps || echo none')" none
	try den exec "$b" -- sh -c 'echo x >>/run/den/reseed.so'
	[ "$rc" != 0 ] || fail "the box can change it"
	try den fork --reseed "$b"
	[ "$rc" != 0 ] || fail "a fork has it from its box"
}

#@ root user
test_another_sitecustomize_is_loaded_too() {
	local b
	b=$(box --reseed)
	den exec "$b" -- mkdir /site
	echo 'import random; print("theirs", type(random._inst).__bases__[0].__name__)' |
		den exec "$b" -- sh -c "cat >/site/sitecustomize.py"
	is "output" "$(den exec --env PYTHONPATH=/site "$b" -- "$PY" -c 'import sitecustomize; print(sitecustomize.__file__)')" \
		"theirs Random
/site/sitecustomize.py"
}

#@ root
test_a_server_makes_such_boxes() {
	source "$TESTS/serve/kit.sh"
	serve_start
	api_json POST /v1/boxes '{"reseed":true}'
	want_code 201
	is "told" "$(j 'v["reseed"]')" true
	is "there" "$(den exec "$(j 'v["id"]')" -- printenv LD_PRELOAD)" /run/den/reseed.so
	api_json POST /v1/boxes '{}'
	want_code 201
	is "not asked" "$(j 'v["reseed"]')" false
	api_json POST /v1/boxes '{"reseed":"yes"}'
	want_code 400
}
