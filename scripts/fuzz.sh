#!/bin/sh
# scripts/fuzz.sh DIR SECONDS: run each libFuzzer target in DIR for so long. What it learns stays in
# .cache/fuzz for the next time; an input that breaks something stays in the working directory.
set -eu

dir=$1 seconds=$2 found=0
for target in "$dir"/fuzz_*; do
    case $target in *.p) continue ;; esac
    [ -x "$target" ] || continue
    name=${target##*/}
    corpus=.cache/fuzz/$name
    mkdir -p "$corpus"
    echo "$name for $seconds s"
    set -- "$corpus"
    [ ! -d "fuzz/corpus/$name" ] || set -- "$corpus" "fuzz/corpus/$name"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -verbosity=0 -artifact_prefix="$name-" "$@"
    found=$((found + 1))
done
[ $found -gt 0 ] || { echo "fuzz.sh: no targets in '$dir'" >&2; exit 1; }
