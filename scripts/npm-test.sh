#!/bin/sh
# Installs what the tests of den serve need from npm into BUILD/node, once:
#   scripts/npm-test.sh BUILD
# Versions and digests are those of tests/serve/npm/package-lock.json. Needs npm, and the network the first time;
# after that nothing, until the lock file changes. No package runs a script of its own. Where the system's node is
# older than 20, the npm package `node`, which carries a newer one, goes to the same place.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: scripts/npm-test.sh BUILD}
lock=$here/tests/serve/npm/package-lock.json
to=$build/node
node_version=22.21.1

want=$(cat "$lock" "$0" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$to/ok" 2>/dev/null)" = "$want" ]; then
	exit 0
fi
if ! command -v npm >/dev/null; then
	echo 'npm-test: npm is not installed (Debian: apt install npm); tests that need it will be skipped' >&2
	exit 1
fi
mkdir -p "$to"
rm -f "$to/ok"
cp "$here/tests/serve/npm/package.json" "$lock" "$to/"
cd "$to"
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
if [ "${major:-0}" -lt 20 ]; then
	case $(uname -m) in
	x86_64) arch=x64 ;;
	aarch64) arch=arm64 ;;
	*)
		echo "npm-test: node 20 or newer is needed, and there is none for $(uname -m)" >&2
		exit 1
		;;
	esac
	npm pack --silent --pack-destination . "node-linux-$arch@$node_version" >/dev/null
	tar xzf "node-linux-$arch-$node_version.tgz" package/bin/node
	mkdir -p bin
	mv package/bin/node bin/node
	rm -rf package "node-linux-$arch-$node_version.tgz"
fi
echo "$want" >ok
