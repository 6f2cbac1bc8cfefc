#!/bin/sh
# scripts/build.sh: what ./den does when build/den is missing or old. Quiet: one line, and the log
# when it fails. Several at once wait for each other and build once.
set -eu

here=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
cd "$here"
umask 022

say() {
    echo "den: $*" >&2
}

# The user whose clone this is builds it, also under sudo: nothing of root's stays in his tree, and
# his files do not run as root.
owner=$(stat -c %u .)
drop=''
if [ "$(id -u)" = 0 ] && [ "$owner" != 0 ]; then
    drop="setpriv --reuid $owner --regid $(stat -c %g .) --clear-groups --"
    $drop test -w "$here" 2>/dev/null || drop=''
fi
if ! $drop mkdir -p build 2>/dev/null || ! $drop test -w build; then
    say "'$here/build' cannot be written; build it once as the owner of '$here'"
    exit 1
fi
log=build/launcher.log

is_stale() {
    [ ! -x build/den ] ||
        [ -n "$(find src include meson.build meson_options.txt -newer build/den -print -quit)" ]
}

# A tree that was moved or copied has a build directory that points to the old place.
is_moved() {
    [ -f build/meson-info/meson-info.json ] &&
        ! grep -Fq "\"source\": \"$here\"" build/meson-info/meson-info.json
}

build() {
    if [ ! -f build/build.ninja ] || is_moved; then
        rm -rf build/meson-private build/meson-info build/build.ninja
        $drop meson setup build || return 1
    fi
    $drop ninja -C build den || return 1
    # A header that den does not use must not make it look old for ever.
    $drop touch -c build/den
}

# Opened by the owner as well; a lock needs no more than reading.
$drop touch build/.lock
(
    flock 9
    is_stale || exit 0 # another one was faster
    $drop truncate -s 0 "$log"
    if ! DEPS_LOG=$here/$log scripts/deps.sh build; then
        tail -n 25 "$log" >&2
        exit 1
    fi
    say 'building (once)...'
    if ! build >>"$log" 2>&1; then
        tail -n 40 "$log" >&2
        say "the build failed; all of it is in '$here/$log'"
        exit 1
    fi
) 9<build/.lock
