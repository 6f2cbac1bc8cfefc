#!/bin/sh
# install.sh PACKAGE...: with apt-get, in a box that may reach the package mirrors.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

apt() {
    # a proxy of the host's is no concern of a box
    apt-get -q -y -o Dpkg::Use-Pty=0 -o Acquire::http::Proxy=false -o Acquire::https::Proxy=false \
        -o Acquire::Retries=2 "$@"
}

if ! command -v apt-get >/dev/null; then
    echo 'this system has no apt-get: install the packages on the host' >&2
    exit 1
fi
# a source that others added to the host may be out of reach; those that matter show below
apt update || :
apt install --no-install-recommends -- "$@"
apt clean
rm -rf /var/lib/apt/lists/*
