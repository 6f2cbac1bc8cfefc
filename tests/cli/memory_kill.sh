# kill -9 in the middle of saving and loading programs: afterwards a box is as before or as after, never lost. And:
# what was brought back is walled off as it was.

source "$TESTS/kit_memory.sh"

# below PID: all its descendants
below() {
	local p
	for p in $(cat "/proc/$1/task/$1/children" 2>/dev/null || :); do
		echo "$p"
		below "$p"
	done
}

# savers KEEPER: those of its descendants that save or load
savers() {
	local p
	for p in $(below "$1"); do
		case $(cat "/proc/$p/comm" 2>/dev/null || :) in *criu* | *runsc* | den-crit*) echo "$p" ;; esac
	done
}

# strike VICTIM KEEPER DELAY_MS: after that long
strike() {
	local end
	sleep "$(printf '%d.%03d' $(($3 / 1000)) $(($3 % 1000)))"
	case $1 in
	keeper) kill -KILL "$2" 2>/dev/null || : ;;
	saver)
		# There is one for a while only: wait a little for it.
		end=$(($(now_ms) + 300))
		while [ "$(now_ms)" -lt $end ]; do
			set -- "$1" "$2" "$3" $(savers "$2")
			if [ $# -gt 3 ]; then
				shift 3
				kill -KILL "$@" 2>/dev/null || :
				return
			fi
		done ;;
	both) kill -KILL $(savers "$2") "$2" 2>/dev/null || : ;;
	esac
}

asked() {
	timeout 60 "$DEN" exec "$1" -- /memory/memory ask "$2" >checked 2>&1
}

# torture BOX CHECKPOINT VICTIM WAY DELAY: the box has 2 steps, the checkpoint 1
torture() {
	local b=$1 c=$2 victim=$3 way=$4 delay=$5 k id n
	k=$(field "$b" keeper_pid)
	strike "$victim" "$k" "$delay" &
	local striker=$!
	case $way in
	checkpoint) try timeout 60 "$DEN" checkpoint --full "$b" ;;
	pause) try timeout 60 "$DEN" pause --disk "$b" ;;
	fork) try timeout 60 "$DEN" fork --full "$b" ;;
	rollback) try timeout 60 "$DEN" rollback "$b" "$c" ;;
	resume)
		try timeout 60 "$DEN" resume "$b" ;;
	esac
	[ "$rc" != 124 ] || fail "$way hangs when $victim is killed after $delay ms"
	local said="$way, $victim killed after $delay ms: status $rc, $err"
	wait $striker || :
	if [ "$way" = rollback ] && [ "$rc" != 0 ] && is_state "$b" stopped; then
		# Its programs had ended, as they were to, and the row did not name the checkpoint yet: nothing is lost by that.
		den rollback "$b" "$c" >/dev/null
		is "the box's files" "$(den exec "$b" -- cat /root/mark)" here
	fi
	if ! asked "$b" check || ! asked "$b" count; then
		# CRIU works inside of the programs that it saves. When it is killed itself, some may end there; then that is
		# told, the files are all there, and so is every checkpoint.
		[ "$victim:$way:${DEN_WALL:-container}" = "saver:${way#rollback}:container" ] && [ "$rc" != 0 ] ||
			fail "$said: afterwards: $(cat checked)"
		is_state "$b" running || den start "$b"
		is "the box's files" "$(den exec "$b" -- cat /root/mark)" here
		den rollback "$b" "$c" >/dev/null
		tell "$b" step
		asked "$b" check || fail "$said: rolled back: $(cat checked)"
		asked "$b" count
		damaged=$((damaged + 1))
	fi
	n=$(sed 's/.* //' checked | sort -u)
	case $way:$rc:$n in
	rollback:0:1 | rollback:[1-9]*:[12]) ;;
	rollback:*) fail "$said: $n steps" ;;
	*:2) ;;
	*) fail "$said: $n steps" ;;
	esac
	# What there is of forks is whole.
	for id in $(boxes); do
		[ "$id" != "$b" ] || continue
		[ "$way" = fork ] || fail "$said: another box: $id"
		if [ "$(state_of "$id")" = running ]; then
			timeout 60 "$DEN" exec "$id" -- /memory/memory ask check >checked 2>&1 || fail "$said: the fork: $(cat checked)"
		elif grep -qF "$id" <<<"$out"; then
			fail "$said: the fork is $(state_of "$id")"
		fi
		den rm --force "$id"
	done
	if [ "$n" = 1 ]; then
		tell "$b" step
	fi
}

tortures() {
	local b c way victim i
	damaged=0
	b=$(carrier)
	carry "$b" counter files pipe tcp threads heap=8 clock
	den exec "$b" -- sh -c 'echo here >/root/mark'
	tell "$b" step
	c=$(full "$b")
	tell "$b" step
	for ((i = 0; i < $1; i++)); do
		for way in checkpoint pause fork rollback; do
			for victim in keeper saver; do
				torture "$b" "$c" $victim $way $((RANDOM % 250))
			done
		done
		# Somebody who comes back while it is brought back.
		timeout 60 "$DEN" pause --disk "$b" >/dev/null
		den inspect "$b" >/dev/null
		torture "$b" "$c" both resume $((RANDOM % 100))
	done
	fine "$b" 2
	echo "programs that ended with CRIU: $damaged times"
}

#@ root timeout=200 waits
test_kill_9_in_the_middle_loses_nothing() {
	can_save
	tortures 1
}

#@ root timeout=1800 soak
test_kill_9_in_the_middle_many_times() {
	can_save
	tortures 15
}

# Everybody at once: the keeper and whoever connects. What was acknowledged is there afterwards.
#@ root timeout=90
test_a_paused_box_survives_without_any_process() {
	local b k
	can_save
	b=$(carrier --name put-away)
	carry "$b" counter files unix heap=8
	tell "$b" step
	den pause --disk "$b" >/dev/null
	k=$(field "$b" keeper_pid)
	if [ -n "$k" ] && [ "$k" != 0 ]; then
		kill -KILL "$k" 2>/dev/null || :
	fi
	den gc >/dev/null
	is state "$(state_of put-away)" paused
	fine put-away 1
}

# ---- the wall stands after it was rebuilt ----

# What the kernel says of each process of a box; a line each. What differs between two kernels' processes is not in it.
rights() {
	den exec "$1" -- sh -c 'for p in /proc/[0-9]*; do
		[ "${p#/proc/}" != $$ ] || continue
		s=$(grep -E "^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap...):" $p/status 2>/dev/null | tr "\n\t" "  ") || continue
		case $(cat $p/comm 2>/dev/null) in grep | tr | cat) continue ;; esac
		echo "${p#/proc/} $s"
	done' | sort -n
}

# attacks BOX: what attacks of its programs say, those of carried ones too
attacks() {
	local a
	for a in forbidden compat mounts peer walk; do
		timeout 60 "$DEN" exec "$1" -- "/attacks/attack-$a" 2>&1 | sort || :
	done
	# By a program that was carried: what holds it now is what held it then.
	for a in forbidden mounts peer; do
		timeout 60 "$DEN" exec "$1" -- /memory/memory ask "/attacks/attack-$a" || :
		den exec "$1" -- sort /root/attack.out
	done
}

OBEDIENT='echo ready; while read w; do case $w in /*) $w >/root/attack.out 2>&1; echo ok;; *) echo ok 0;; esac; done'

#@ root timeout=200
test_the_wall_stands_after_rollback_and_in_forks() {
	local b c f before answers
	can_save
	b=$(carrier --mount "$ATTACKS:/attacks:ro")
	carry "$b" "$OBEDIENT"
	before=$(rights "$b")
	at_least "processes looked at" "$(wc -l <<<"$before")" 3
	answers=$(attacks "$b")
	is "attacks made" "$(grep -c '[1-9][0-9]* tried' <<<"$answers")" 8
	# What reaches gVisor's kernel reaches none of ours, so there the answers need only be the same.
	[ "${DEN_WALL:-container}" != container ] || is "open" "$(grep -c ' 0 open' <<<"$answers")" 8
	c=$(full "$b")
	is "rights of the original" "$(rights "$b")" "$before"
	den rollback "$b" "$c" >/dev/null
	is "rights after a rollback" "$(rights "$b")" "$before"
	is "attacks after a rollback" "$(attacks "$b")" "$answers"
	f=$(den fork --full "$b@$c")
	is "rights in a fork" "$(rights "$f")" "$before"
	is "attacks in a fork" "$(attacks "$f")" "$answers"
	[ ! -e "$ATTACKS/planted" ] || fail "a read-only mount was written"
}

# Limits are of the box, not of the checkpoint's first life.
#@ root timeout=90
test_limits_hold_for_what_was_brought_back() {
	local b f
	can_save
	b=$(carrier --memory 192m --pids 60)
	carry "$b" counter 'echo ready; while read w; do case $w in eat) head -c 400m /dev/zero | tail -c 399m >/dev/null && echo FAIL: ate || echo ok;; spawn) n=0; while [ $n -lt 200 ]; do sleep 20 2>/dev/null & n=$((n+1)); done; echo ok $(ls -d /proc/[0-9]* | wc -l);; *) echo ok 0;; esac; done #/'
	den pause --disk "$b" >/dev/null
	den resume "$b"
	f=$(den fork --full "$b")
	for b in "$b" "$f"; do
		try timeout 60 "$DEN" exec "$b" -- /memory/memory ask eat
		not grep -q 'FAIL: ate' <<<"$out" || fail "more memory than the limit: $out"
		at_most "memory peak" "$(field "$b" memory)" $((192 << 20))
		is "limit of processes" "$(field "$b" pids)" 60
	done
}

# ---- large ones ----

#@ root timeout=900 soak
test_a_heap_of_500_megabytes_is_carried() {
	local b c f
	can_save
	b=$(carrier --memory 2g)
	carry "$b" heap=500 clock counter
	tell "$b" step
	gap "$b" >/dev/null
	c=$(full "$b")
	fine "$b" 1
	tell "$b" step
	f=$(den fork --full "$b@$c")
	fine "$f" 1
	den rm --force "$f"
	den rollback "$b" "$c" >/dev/null
	fine "$b" 1
	den pause --disk "$b" >/dev/null
	den resume "$b"
	fine "$b" 1
}

#@ root timeout=120
test_a_heap_of_100_megabytes_is_carried() {
	local b f
	can_save
	b=$(carrier --memory 1g)
	carry "$b" heap=100
	tell "$b" step
	f=$(den fork --full "$b")
	tell "$b" step
	fine "$f" 1
	fine "$b" 2
	den pause --disk "$f" >/dev/null
	den resume "$f"
	fine "$f" 1
}
