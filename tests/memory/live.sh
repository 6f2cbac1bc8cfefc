#!/bin/bash
# What lives in a shell: variables, arrays, functions, a job, a coprocess, a trap, a here-document half read; and a
# git repository in which somebody commits all the time.
steps=0 caught=0
declare -A map=([one]=1 [two]="zwei drei")
trap 'caught=$((caught + 1))' USR1
coproc ECHO { while read -r x; do echo "<$x>"; done; }
sleep 100000 &
job=$!
dir=$(mktemp -d "${HOME:-/tmp}/live.XXXXXX")
exec 7<<X
$(seq 100000)
X
next=1

commits() {
	cd "$dir" || exit 1
	git init -q .
	git config user.email a@example.org
	git config user.name a
	git config gc.auto 0
	while sleep 0.05; do
		date +%N >"f$((RANDOM % 20))"
		flock "$dir.lock" sh -c 'git add . && git commit -qm "$0" --allow-empty' "$RANDOM" || exit 1
	done
}
commits >"$dir.log" 2>&1 &
committer=$!

head_count() {
	git -C "$dir" rev-list --count HEAD 2>/dev/null || echo 0
}

check() {
	local line before end=$((SECONDS + 20))
	[ "${map[two]}" = "zwei drei" ] || { echo "FAIL: the array"; return; }
	kill -USR1 $$
	[ $caught = $((was + 1)) ] || { echo "FAIL: the trap"; return; }
	was=$caught
	echo "$caught" >&"${ECHO[1]}"
	read -r -t 20 line <&"${ECHO[0]}"
	[ "$line" = "<$caught>" ] || { echo "FAIL: the coprocess: $line"; return; }
	read -r line <&7
	[ "$line" = "$next" ] || { echo "FAIL: the here-document: $line, not $next"; return; }
	next=$((next + 1))
	[ "$(jobs -p | head -1)" ] && kill -0 $job || { echo "FAIL: the job"; return; }
	before=$(head_count)
	until [ "$(head_count)" -gt "$before" ]; do
		kill -0 $committer || { echo "FAIL: git: $(tail -1 "$dir.log")"; return; }
		[ $SECONDS -lt $end ] || { echo "FAIL: nobody commits"; return; }
		sleep 0.02
	done
	# A look while somebody commits finds names of what is not written yet.
	flock "$dir.lock" git -C "$dir" fsck --no-dangling >"$dir.fsck" 2>&1 || { echo "FAIL: git fsck: $(head -1 "$dir.fsck")"; return; }
	echo ok
}

was=0
until [ "$(head_count)" -gt 0 ]; do sleep 0.02; done
echo ready
while read -r word; do
	case $word in
	step) steps=$((steps + 1)); echo ok ;;
	count) echo "ok $steps" ;;
	*) check ;;
	esac
done
kill $job $committer
