#!/bin/sh
# scripts/build.sh [serve]: what ./den does when build/den is missing or old, or build/den-serve when that is
# asked for. Quiet: one line, and the log when it fails. Several at once wait for each other and build once.
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

# The server and its page need packages that a box does not: they are built when somebody asks for them.
programs='den den-fetch den-gate den-vault'
deps=build
newest=build/den
if [ "${1:-}" = serve ]; then
    programs="$programs den-serve"
    deps='build serve'
    newest=build/den-serve
fi

is_stale() {
    [ ! -x "$newest" ] ||
        [ -n "$(find src include ui share meson.build meson_options.txt -newer "$newest" -print -quit 2>/dev/null)" ]
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
    elif [ "$deps" != build ] && ! [ -x "$newest" ]; then
        $drop meson setup --reconfigure build || return 1 # what was missing may be there now
    fi
    # shellcheck disable=SC2086
    $drop ninja -C build $programs || return 1
    # A header that den does not use must not make it look old for ever.
    # shellcheck disable=SC2086
    (cd build && $drop touch -c $programs)
}

# Opened by the owner as well; a lock needs no more than reading.
$drop touch build/.lock
(
    flock 9
    is_stale || exit 0 # another one was faster
    $drop truncate -s 0 "$log"
    # shellcheck disable=SC2086
    if ! DEPS_LOG=$here/$log scripts/deps.sh $deps; then
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
