# Shared by image and fresh; sourced by bash.

vm_say() { echo "vm: $*" >&2; }
vm_die() { vm_say "$*"; exit 125; }

# vm_need PROGRAM PACKAGE: install PACKAGE if PROGRAM is missing and we may, else say how.
vm_need() {
	local get=(apt-get -qq install -y --no-install-recommends "$2")

	command -v "$1" >/dev/null && return
	[ "$(id -u)" = 0 ] || vm_die "$1 is missing: apt-get install --no-install-recommends $2"
	vm_say "installing $2"
	# A machine that was just made has no package lists yet.
	"${get[@]}" </dev/null >&2 || { apt-get -qq update >&2 && "${get[@]}" </dev/null >&2; } ||
		vm_die "apt-get could not install $2"
}

# The cache directory, made; it must not be part of the tree that is copied into the guest.
vm_cache() {
	local dir=${DEN_VM_CACHE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.cache/vm}
	mkdir -p "$dir"
	echo "$dir"
}

# vm_archive LABEL: the first archive of Debian with that label which apt is configured with.
vm_archive() {
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
		"Label: $1" | sed -n '1s,/$,,p'
}

# vm_sources SUITE: lines for sources.list, from the archive that this machine's apt is configured
# with, so that a mirror that works here works for the guest too.
vm_sources() {
	local suite=$1 base=${DEN_VM_MIRROR:-} security=
	if [ -z "$base" ]; then
		[ -n "$(vm_archive Debian)" ] || [ "$(id -u)" != 0 ] || apt-get -qq update >&2
		base=$(vm_archive Debian)
		security=$(vm_archive Debian-Security)
	fi
	[ -n "$base" ] || vm_die "apt knows no Debian archive: set DEN_VM_MIRROR to the address of one"
	[ -n "$security" ] || security=${base%/debian}/debian-security
	echo "deb $base $suite main"
	echo "deb $base $suite-updates main"
	echo "deb $security $suite-security main"
}

# vm_debootstrap SUITE DIRECTORY OPTIONS...: a minimal Debian in DIRECTORY. What apt has been told
# here about proxies and clocks holds for it too.
vm_debootstrap() {
	local suite=$1 dir=$2 line
	local -a opt=()
	shift 2
	while read -r line; do
		opt+=("--aptopt=$line")
	done < <(apt-config dump | grep -iE '^Acquire::(https?::(.*::)?Proxy|Check-Valid-Until) "')
	vm_sources "$suite" >"$dir.list"
	mmdebstrap --mode=root --variant=minbase "${opt[@]}" "$@" "$suite" "$dir" "$dir.list"
}
