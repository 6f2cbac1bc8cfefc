#!/bin/sh
# scripts/ui.sh SOURCE WORK OUT.c DEPFILE MODE: the page of den-serve as a C file. Its npm packages are installed
# into WORK, by the lock file, without running anything of theirs.
#
# MODE auto: without npm, or where its packages cannot be had, the C file says so instead, and den-serve is built
# without the page. enabled: then the build fails. disabled: no page.
set -eu
source=$1 work=$2 out=$3 dep=$4 mode=$5

# without REASON: the C file that has no page. Its depfile names what is never there, so the next build tries again.
without() {
    [ "$mode" != enabled ] || { echo "ui: $1" >&2; exit 1; }
    [ "$mode" = disabled ] || echo "ui: den-serve is built without its page: $1" >&2
    cat >"$out" <<C
/* Made by scripts/ui.sh: no page. */
#include "assets.h"

const struct ui_asset ui_assets[] = { { "", "", "", 0, 0, 0 } };
const size_t ui_n_assets = 0;
const char ui_version[] = "";
const char *const ui_missing =
	"This den-serve was built without its page.\n\n"
	"Why: $1\n\n"
	"To get it: install nodejs and npm (on Debian: apt-get install nodejs npm), build den again in a place that\n"
	"reaches an npm registry, and install it. Everything that the page does can be done with den and over /v1 too.\n";
C
    if [ "$mode" = disabled ]; then echo "$out:" >"$dep"; else echo "$out: $work/never" >"$dep"; fi
    exit 0
}

[ "$mode" != disabled ] || without 'it was switched off (-Dui=disabled).'
for tool in npm node; do
    command -v $tool >/dev/null || without "$tool was not there."
done
mkdir -p "$work"
if ! cmp -s "$source/package-lock.json" "$work/installed" || [ ! -d "$work/node_modules/@xterm" ]; then
    rm -f "$work/installed"
    cp "$source/package.json" "$source/package-lock.json" "$work/"
    (cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier) >"$work/npm.log" 2>&1 || {
        tail -n 5 "$work/npm.log" >&2
        without 'npm could not install its packages.'
    }
    cp "$source/package-lock.json" "$work/installed"
fi
node "$source/embed.mjs" "$source" "$work/node_modules" "$out"
# Files that come or go are seen by the folder.
{
    printf '%s:' "$out"
    for f in "$source" "$source"/*; do printf ' %s' "$f"; done
    echo
} >"$dep"
