#!/bin/sh
# scripts/runtime.sh WHAT...: put programs that den runs boxes with, and that the distribution at hand does not
# have or not new enough, into a place of their own: nothing of the host's is replaced.
#
#   runsc   gVisor, for --wall gvisor: the distribution's own package, or that of its backports
#
#   DEN_RUNTIME=DIR   where to (default: /usr/local/lib/den/runtime)
#
# The mirror is the one that apt is configured with. stdin is never read and nothing goes to stdout.
set -eu
exec </dev/null >&2
PATH=$PATH:/usr/sbin:/sbin
prefix=${DEN_RUNTIME:-/usr/local/lib/den/runtime}

say() {
    echo "den: $*"
}

fail() {
    say "$*"
    exit 1
}

# Debian's mirror, as the machine's own lists have it, and the suite that they are of.
mirror() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(CODENAME)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $3 !~ /-/ { print $2, $3; exit }'
}

# fetch DIR SUITE PACKAGE...: unpacks packages of a suite below DIR. Lists and downloads are private.
fetch() {
    dir=$1 suite=$2
    shift 2
    # shellcheck disable=SC2046
    set -- "$dir" "$suite" $(mirror) "$@"
    [ "${3#*:}" != "$3" ] || fail "apt's lists name no mirror of Debian; 'apt-get update' first"
    uri=$3
    shift 4
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/deb"
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] $uri $suite main" >"$work/sources.list"
    private="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$work/lists
        -o Dir::Cache=$work/cache -o APT::Sandbox::User=root -q"
    # shellcheck disable=SC2086
    (cd "$work/deb" && apt-get $private update && apt-get $private download "$@") >"$work/log" 2>&1 || {
        tail -n 10 "$work/log"
        rm -rf "$work"
        fail "could not fetch $* of $suite"
    }
    mkdir -p "$dir"
    for deb in "$work"/deb/*.deb; do
        dpkg-deb -x "$deb" "$dir"
    done
    rm -rf "$work"
}

# put FILE NAME: as $prefix/bin/NAME, in one step.
put() {
    mkdir -p "$prefix/bin"
    cp "$1" "$prefix/bin/.$2.$$"
    chmod 755 "$prefix/bin/.$2.$$"
    mv -f "$prefix/bin/.$2.$$" "$prefix/bin/$2"
}

get_runsc() {
    [ ! -x "$prefix/bin/runsc" ] || return 0
    [ -n "${DEN_RUNTIME:-}" ] || ! command -v runsc >/dev/null || return 0
    command -v apt-get >/dev/null || fail 'runsc is missing, and there is no apt-get here'
    # shellcheck disable=SC2046
    set -- $(mirror)
    [ $# = 2 ] || fail "apt's lists name no mirror of Debian; 'apt-get update' first"
    suite=$2
    [ "$suite" != bookworm ] || suite=bookworm-backports
    say "fetching runsc of $suite"
    tree=$(mktemp -d)
    fetch "$tree" "$suite" runsc
    put "$tree/usr/bin/runsc" runsc
    rm -rf "$tree"
    "$prefix/bin/runsc" --version >/dev/null || fail "$prefix/bin/runsc does not run"
}

[ $# -gt 0 ] || fail 'usage: scripts/runtime.sh runsc ...'
for what; do
    case $what in
    runsc) get_runsc ;;
    *) fail "runtime.sh: '$what' is not runsc" ;;
    esac
done
