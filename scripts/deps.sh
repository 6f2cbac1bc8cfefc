#!/bin/sh
# scripts/deps.sh WHAT...: install the Debian packages that are missing for build, serve, test, fuzz,
# vm, bench or lint. The one list of what den needs from the distribution. Debian 12 is the floor;
# Debian 13 and Ubuntu 24.04 have the same names.
#
#   DEN_SKIP_DEPS=1   take it for granted that everything is there
#   DEPS_LOG=FILE     what apt-get says goes here; else it is shown only on failure
#
# stdin is never read and nothing goes to stdout.
set -eu
exec </dev/null >&2
PATH=$PATH:/usr/sbin:/sbin

# zlib1g-dev: pkg-config names it for a static link with SQLite.
build='gcc libc6-dev musl-tools make meson ninja-build pkg-config libsqlite3-dev zlib1g-dev libseccomp-dev btrfs-progs ca-certificates libcurl4-openssl-dev libc-ares-dev libssl-dev libjansson-dev libzstd-dev liblzma-dev'
# den-serve: the HTTP server. Without these the rest is built.
serve='libmicrohttpd-dev libwslay-dev'
# The page comes from npm packages, at build time. Some have an npm that is no package, which Debian's would
# contradict.
command -v npm >/dev/null || serve="$serve nodejs npm"
# sudo, uidmap: boxes are made from the host's own programs, and tests use these inside.
test="$build $serve bash git python3 procps util-linux uidmap sudo e2fsprogs mandoc clang libclang-rt-dev"
# docker-registry, skopeo, openssl, iproute2: a registry on the loopback, and what fills it. umoci: takes
# what is exported.
test="$test docker-registry skopeo openssl iproute2 umoci xz-utils busybox-static"
# What goes through the gate in tests. sshd is used where it is there, and not asked for: its package
# opens a port of the machine.
test="$test curl nodejs openssh-client bind9-dnsutils netcat-openbsd iputils-ping"
# The code interpreter: boxes use what the host has.
test="$test python3-yaml python3-ipykernel python3-zmq python3-numpy python3-pandas python3-matplotlib"
# What looks at the page.
test="$test chromium"
# tmux, vim: programs that are saved while they run. zsh, fish: to complete in them.
test="$test tmux vim zsh fish"
fuzz="$build $serve clang libclang-rt-dev"
vm="$build python3 qemu-system-x86 mmdebstrap e2fsprogs"
bench="$build $serve python3 wrk bubblewrap crun runc slirp4netns passt socat ripgrep"
lint="$build python3 mandoc shellcheck clang-format"

say() {
    echo "den: $*"
}

# missing PACKAGE...: those that are not installed.
missing() {
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^installed //p') || :
    for p; do
        case "
$installed
" in
        *"
$p
"*) ;;
        *) echo "$p" ;;
        esac
    done
}

# Where the metapackage is unknown, the run time of the clang that is the default here.
real_name() {
    if [ "$1" = libclang-rt-dev ] && ! apt-cache show "$1" >/dev/null 2>&1; then
        apt-cache depends clang 2>/dev/null |
            sed -n 's/.*Depends: clang-\([0-9]*\)$/libclang-rt-\1-dev/p' | head -n 1
    else
        echo "$1"
    fi
}

real_names() {
    for p; do
        n=$(real_name "$p")
        echo "${n:-$p}"
    done
}

# The command that apt-get is to be started with: nothing, sudo, or a failure.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif ! command -v sudo >/dev/null; then
        return 1
    elif sudo -n true 2>/dev/null; then
        echo 'sudo -n'
    elif [ -t 2 ]; then
        echo sudo # it asks at the terminal
    else
        return 1
    fi
}

apt() {
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -q -y "$@" >>"$log" 2>&1
}

install() {
    apt install --no-install-recommends "$@"
}

# What is in no suite that can be taken for granted; without it the tests that need it are skipped.
runtime() {
    [ -n "$runtime" ] || return 0
    # shellcheck disable=SC2086
    "$(dirname "$0")/runtime.sh" $runtime || say "without $runtime some tests are skipped, and say so"
}

wanted=''
runtime=''
for what; do
    case $what in
    build) wanted="$wanted $build" ;;
    serve) wanted="$wanted $build $serve" ;;
    test)
        wanted="$wanted $test"
        runtime='runsc criu'
        ;;
    fuzz) wanted="$wanted $fuzz" ;;
    vm) wanted="$wanted $vm" ;;
    bench)
        wanted="$wanted $bench"
        runtime='runsc criu'
        ;;
    lint) wanted="$wanted $lint" ;;
    *)
        say "deps.sh: '$what' is none of build, serve, test, fuzz, vm, bench, lint"
        exit 2
        ;;
    esac
done
[ -n "$wanted" ] || { say 'usage: scripts/deps.sh build|serve|test|fuzz|vm|bench|lint ...'; exit 2; }
[ -z "${DEN_SKIP_DEPS:-}" ] || exit 0
# Another distribution has other names for these; what the tools themselves miss they say.
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    for tool in cc meson ninja pkg-config; do
        if ! command -v $tool >/dev/null; then
            say "'$tool' is missing, and there is no apt-get here. On Debian, den needs:$wanted"
            exit 1
        fi
    done
    exit 0
fi

# shellcheck disable=SC2086,SC2046
set -- $(missing $wanted)
# shellcheck disable=SC2046
[ $# = 0 ] || set -- $(missing $(real_names "$@"))
if [ $# = 0 ]; then
    runtime
    exit 0
fi
if ! root=$(as_root); then
    say 'these packages are missing, and only root can install them. Run:'
    say "  sudo apt-get install --no-install-recommends $*"
    exit 1
fi
say "installing $*"
made=''
log=${DEPS_LOG:-}
if [ -z "$log" ]; then
    log=$(mktemp)
    made=$log
    trap 'rm -f "$made"' EXIT
fi
# A fresh machine has no package lists, an old one has stale ones: both show as a failure.
if ! install "$@"; then
    say 'reading package lists'
    # shellcheck disable=SC2046
    if ! apt update || ! install $(real_names "$@"); then
        [ -z "$made" ] || tail -n 25 "$log"
        say "apt-get could not install: $*"
        exit 1
    fi
fi
runtime
