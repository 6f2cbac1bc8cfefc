#!/bin/sh
# scripts/runtime.sh WHAT...: put programs that den runs boxes with, and that the distribution at hand does not
# have or not new enough, into a place of their own: nothing of the host's is replaced.
#
#   runsc   gVisor, for --wall gvisor: the distribution's own package, or that of its backports
#   criu    CRIU 4.2 or newer, for full checkpoints of container boxes: of Debian's newest suites, with the loader and
#           every library that it needs, so that the host's are neither used nor touched
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

# fetch DIR SUITE PACKAGE...: unpacks packages of a suite below DIR. Lists and downloads are private. With all=1,
# along with all that they depend on.
all=''
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
    get='download'
    if [ -n "$all" ]; then # as if nothing were installed
        : >"$work/status"
        private="$private -o Dir::State::status=$work/status -o Dir::Cache::archives=$work/deb -o Debug::NoLocking=1"
        get='-y --download-only --no-install-recommends install'
    fi
    # shellcheck disable=SC2086
    (mkdir -p "$work/deb/partial" && cd "$work/deb" && apt-get $private -o Acquire::Languages=none update &&
        apt-get $private $get "$@") >"$work/log" 2>&1 || {
        tail -n 10 "$work/log"
        rm -rf "$work"
        say "could not fetch $* of $suite"
        return 1
    }
    mkdir -p "$dir"
    for deb in "$work"/deb/*.deb; do # -e is not in force here: whoever calls asks whether it went well
        dpkg-deb -x "$deb" "$dir" || {
            rm -rf "$work"
            say "could not unpack ${deb##*/} of $suite"
            return 1
        }
    done
    rm -rf "$work"
}

# put FILE NAME: as $prefix/bin/NAME, in one step.
put() {
    mkdir -p "$prefix/bin" && cp "$1" "$prefix/bin/.$2.$$" && chmod 755 "$prefix/bin/.$2.$$" &&
        mv -f "$prefix/bin/.$2.$$" "$prefix/bin/$2" && return 0
    rm -f "$prefix/bin/.$2.$$"
    return 1
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
    if ! fetch "$tree" "$suite" runsc || ! put "$tree/usr/bin/runsc" runsc; then
        rm -rf "$tree"
        exit 1
    fi
    rm -rf "$tree"
    "$prefix/bin/runsc" --version >/dev/null || {
        rm -f "$prefix/bin/runsc" # else it would be taken for a whole one from now on
        fail "the runsc of $suite does not run here"
    }
}

# new_enough VERSION: 4.2 or newer.
new_enough() {
    [ -n "$1" ] && dpkg --compare-versions "$1" ge 4.2
}

# criu_of TREE: the version of what is there, started as den starts it.
criu_of() {
    "$1/ld.so" --inhibit-cache --library-path "$1/lib" "$1/criu" --no-default-config --version 2>/dev/null |
        sed -n 's/^Version: *//p'
}

get_criu() {
    ! new_enough "$(cat "$prefix/criu/version" 2>/dev/null)" || return 0
    command -v apt-get >/dev/null || fail 'CRIU is missing, and there is no apt-get here'
    mkdir -p "$prefix" 2>/dev/null || :
    [ -w "$prefix" ] || fail "'$prefix' cannot be written; run this as root"
    all=1
    for suite in forky sid; do
        tree=$prefix/.criu.$$
        say "fetching CRIU of $suite"
        if fetch "$tree" "$suite" criu; then
            loader=$(find "$tree/usr/lib" "$tree/lib" -name 'ld-linux*.so.*' 2>/dev/null | head -n 1)
            [ -n "$loader" ] || {
                rm -rf "$tree"
                fail "the packages of $suite bring no loader"
            }
            # relative: the place may be moved
            loader=${loader#"$tree/"}
            ln -s "$(dirname "$loader")" "$tree/lib" && ln -s "lib/$(basename "$loader")" "$tree/ld.so"
            ln -s usr/sbin/criu "$tree/criu"
            rm -rf "${tree:?}/usr/share" "${tree:?}/usr/include" "${tree:?}/etc" "${tree:?}/lib/gconv"
            version=$(criu_of "$tree")
            if new_enough "$version"; then
                echo "$version" >"$tree/version"
                rm -rf "$prefix/criu"
                mv "$tree" "$prefix/criu"
                all=''
                return 0
            fi
        fi
        rm -rf "$tree"
    done
    fail 'no CRIU that is new enough was found; full checkpoints of container boxes will not work'
}

[ $# -gt 0 ] || fail 'usage: scripts/runtime.sh runsc|criu ...'
# Two at once would take apart what the other puts in place: the second waits, and finds it there.
if [ -z "${DEN_RUNTIME_LOCKED:-}" ] && command -v flock >/dev/null; then
    mkdir -p "$prefix"
    DEN_RUNTIME_LOCKED=1 exec flock -w 1200 "$prefix" sh "$0" "$@"
fi
bad=0
for what; do
    case $what in
    runsc) (get_runsc) || bad=1 ;; # what fails must not keep the others away
    criu) (get_criu) || bad=1 ;;
    *) fail "runtime.sh: '$what' is none of runsc, criu" ;;
    esac
done
exit $bad
