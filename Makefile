# A thin door to meson and the scripts: what is done is in them.
#
#   make            build build/den, the library and the programs of the tests
#   make test       everything that must hold before a change goes in; its last line is the count
#   make bench      measure, and compare with what is on this machine
#   make fuzz       each fuzz target for FUZZ_SECONDS
#   make soak       the tests with the mark soak; SOAK_OPERATIONS random operations with kill -9 in between; history against a model;
#                   SOAK_CLIENTS clients of E2B's SDK at once, SOAK_TURNS turns each
#   make test-gvisor  the suite behind the second wall; TESTS chooses
#   make test-vm    the suite on a stock Debian 12 kernel, emulated (slow); VM_TESTS chooses
#   make test-fresh the README's first command in a Debian with nothing installed
#   make install    PREFIX=/usr/local, DESTDIR=
#   make lint       manual page, shell scripts, SPEC; make format rewrites C files
FUZZ_SECONDS ?= 60
SOAK_OPERATIONS ?= 5000
SOAK_CLIENTS ?= 300
SOAK_TURNS ?= 3
VM_TESTS ?= .
TESTS ?= .
JOBS ?= 4
PREFIX ?= /usr/local

MESON = meson setup
NINJA = ninja --quiet
SANITIZE = -Dstatic=false -Doptimization=0 -Db_sanitize=address,undefined -Db_lundef=false

export ASAN_OPTIONS ?= detect_leaks=1:abort_on_error=1
export UBSAN_OPTIONS ?= halt_on_error=1:print_stacktrace=1

.PHONY: all build test check bench fuzz soak test-gvisor test-vm test-fresh install clean format lint \
	deps-build deps-test deps-fuzz deps-vm deps-bench deps-lint asan clang
.NOTPARALLEL:
.SILENT:

all: build

deps-build deps-test deps-fuzz deps-vm deps-bench deps-lint: deps-%:
	scripts/deps.sh $*

# A build directory from before the server's packages were there is looked at again.
again = grep -q den-serve $(1)/build.ninja || ! pkg-config --exists libmicrohttpd || \
	meson setup --reconfigure $(1) >/dev/null

build: deps-build
	test -f build/build.ninja || $(MESON) build >/dev/null
	$(call again,build)
	$(NINJA) -C build

asan:
	echo "unit tests with address and undefined behaviour sanitizers"
	test -f build-asan/build.ninja || $(MESON) build-asan $(SANITIZE) >/dev/null
	$(call again,build-asan)
	$(NINJA) -C build-asan tests/unit tests/wall_init

clang:
	echo "all of it with clang, warnings are errors"
	test -f build-clang/build.ninja || CC=clang $(MESON) build-clang -Doptimization=0 >/dev/null
	$(call again,build-clang)
	$(NINJA) -C build-clang

# What needs no box.
check:
	echo "manual page, SPEC"
	mandoc -T lint -W warning man/den.1
	tests/check-spec

test: deps-test build asan clang check
	-scripts/npm-test.sh build
	tests/run --build build --jobs $(JOBS) --again --filter '$(TESTS)'

bench: deps-bench build
	bench/run.py --build build
	bench/store.py --build build
	bench/gate.py --build build
	bench/serve.py --build build
	bench/memory.py --build build

fuzz: deps-fuzz
	test -f build-fuzz/build.ninja || \
		CC=clang $(MESON) build-fuzz -Dfuzzers=true -Dstatic=false >/dev/null
	scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

soak: deps-test build
	LOAD_SCALE=54 tests/run --build build --no-unit --slow 20 --jobs 1 --filter '^gate_load'
	tests/run --build build --no-unit --jobs 1 --soak-only
	scripts/npm-test.sh build
	tests/serve/soak.sh build $(SOAK_CLIENTS) $(SOAK_TURNS)
	DEN=$(CURDIR)/build/den tests/fault/run $(SOAK_OPERATIONS)
	for pool in btrfs plain; do \
		for how in '' --kill --full --power; do \
			DEN=$(CURDIR)/build/den tests/model/run --pool $$pool $$how --ops $$(($(SOAK_OPERATIONS) / 5)) || exit 1; \
		done; \
	done

# Behind the second wall everything takes longer, and two at a time are enough for two processors.
test-gvisor: deps-test build
	-scripts/npm-test.sh build
	tests/run --build build --no-unit --wall gvisor --slow 3 --jobs 2 --again --filter '$(TESTS)'

test-vm: deps-vm build
	tests/vm/run --timeout 14400 build -- tests/run --build build --jobs 2 --slow 4 \
		--filter '$(VM_TESTS)'

test-fresh: deps-vm
	tests/vm/fresh -- ./den run -- echo hello from the box

install: build
	meson setup --reconfigure build -Dprefix='$(PREFIX)' >/dev/null
	$(NINJA) -C build
	meson install -C build --no-rebuild --quiet

lint: deps-lint check
	shellcheck -x -P SCRIPTDIR den scripts/*.sh .ci/run tests/vm/fresh tests/vm/image tests/serve/soak.sh
	python3 -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]' \
		tests/run tests/fault/run tests/model/run tests/model/*.py tests/vm/run tests/check-spec

format: deps-lint
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build build-asan build-clang build-fuzz
