#!/bin/sh
# full_disk.sh IMAGE DIR: the pool's image is larger than the disk it is on, IMAGE, which is mounted on DIR
# in a mount namespace of our own. Says what went wrong, and ends with 1 then.
set -u
image=$1 dir=$2
bad=0
wrong() {
	echo "WRONG: $*"
	bad=1
}
mount -o loop "$image" "$dir" || exit 1
export DEN_STATE="$dir/state"
"$DEN" pool --kind btrfs --size 4G >/dev/null || exit 1
"$DEN" create --name keep >/dev/null || exit 1
"$DEN" exec keep -- sh -c 'echo safe >/root/safe' || wrong "the first exec"

# a box writes more than the disk below has: it is told so, as on any disk
"$DEN" create --name big --history manual >/dev/null || exit 1
said=$("$DEN" exec big -- sh -c 'head -c 2G /dev/zero >/root/a; sync; head -c 40M /dev/urandom >/root/b; sync; dd if=/root/a of=/dev/null bs=1M' 2>&1)
case "$said" in
*"No space left"*) ;;
*) wrong "a box that fills the disk was told: $said" ;;
esac
case "$said" in
*"nput/output"* | *"ead-only"*) wrong "a box that fills the disk got: $said" ;;
esac

# and somebody else takes what was left
dd if=/dev/zero of="$dir/filler" bs=1M >/dev/null 2>&1
dd if=/dev/zero of="$dir/filler2" bs=4k >/dev/null 2>&1
[ "$("$DEN" exec keep -- cat /root/safe)" = safe ] || wrong "what was written before cannot be read"
# Behind gVisor the first box was slower and was stopped earlier: what is left of the pool may be enough for this one,
# and then it has to be there.
sum=
if said=$("$DEN" exec keep -- sh -c 'head -c 9M /dev/urandom >/root/c && sync && sha256sum </root/c' 2>&1); then
	sum=$said
	[ "${DEN_WALL:-}" = gvisor ] || wrong "a write on a full disk worked"
fi
case "$said" in
*"nput/output"* | *"ead-only"*) wrong "a box on a full disk got: $said" ;;
esac
"$DEN" log keep >/dev/null || wrong "log on a full disk"
"$DEN" stop --grace 0 keep >/dev/null || wrong "stop on a full disk"
"$DEN" start keep >/dev/null || wrong "start on a full disk"
sync -f "$dir"; echo 3 >/proc/sys/vm/drop_caches
[ -z "$sum" ] || [ "$("$DEN" exec keep -- sh -c 'sha256sum </root/c')" = "$sum" ] || wrong "what was written on a full disk is not there"
said=$("$DEN" create --name more 2>&1) && wrong "create on a full disk worked"
[ $? -eq 6 ] || wrong "create on a full disk ended with another status: $said"
case "$said" in
*"den rm"*) ;;
*) wrong "create on a full disk does not say what to do: $said" ;;
esac
"$DEN" gc >/dev/null 2>&1 || wrong "gc on a full disk"
"$DEN" rm --force big >/dev/null || wrong "rm on a full disk"
"$DEN" inspect big >/dev/null 2>&1 && wrong "a deleted box is there"

# which made room, to be had at once
"$DEN" exec keep -- sh -c 'head -c 20M /dev/urandom >/root/d && sync' || wrong "a write after rm made room"
"$DEN" checkpoint keep >/dev/null || wrong "a checkpoint after rm made room"
"$DEN" create --name more >/dev/null || wrong "create after rm made room"
"$DEN" rm --force keep more >/dev/null || wrong "rm at the end"
exit $bad
