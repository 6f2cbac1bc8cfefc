#!/bin/sh
# scripts/fuzz.sh BUILDDIR SECONDS: build each libFuzzer target and run it for so long. What it learns
# stays in .cache/fuzz for the next time; an input that breaks something stays in the working
# directory.
set -eu

build=$1 seconds=$2
targets=$(ninja -C "$build" -t targets all | sed -n 's,^\(fuzz/fuzz_[a-z_]*\): .*,\1,p')
[ -n "$targets" ] || { echo "fuzz.sh: no targets in '$build'" >&2; exit 1; }
# shellcheck disable=SC2086
ninja --quiet -C "$build" $targets
for target in $targets; do
    name=${target##*/}
    corpus=.cache/fuzz/$name
    mkdir -p "$corpus"
    set -- "$corpus"
    [ ! -d "fuzz/corpus/$name" ] || set -- "$corpus" "fuzz/corpus/$name"
    echo "$name for $seconds s"
    if ! "$build/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=1 -artifact_prefix="$name-" "$@" >"$build/$name.log" 2>&1; then
        tail -n 60 "$build/$name.log"
        echo "$name found something; the input is in '$name-...'"
        exit 1
    fi
    sed -n 's/^stat::number_of_executed_units: */  inputs tried: /p' "$build/$name.log"
done
