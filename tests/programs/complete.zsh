# zsh -f complete.zsh FUNCTIONS OUT LINE...: types each LINE and the Tab key at an interactive zsh, and
# prints the line as it then is, with a bar at its end.
zmodload zsh/zpty
dir=$1 out=$2
shift 2
zpty -b shell TERM=dumb zsh -f -i
zpty -w shell "fpath=(${(q)dir} \$fpath); autoload -Uz compinit; compinit -D -u"
zpty -w shell "told() { print -r -- \"\$BUFFER|\" >>${(q)out}; BUFFER=; CURSOR=0 }"
zpty -w shell "zle -N told; bindkey '^I' complete-word '^T' told; : >${(q)out}; : >${(q)out}.ready"
wait_for() {
	local i
	for ((i = 0; i < 400; i++)); do
		eval "$1" && return 0
		zpty -rt shell junk 2>/dev/null # what it echoes must not fill the terminal
		sleep 0.05
	done
	print -u2 -- "complete.zsh: waited in vain: $1"
	exit 1
}
wait_for '[[ -e $out.ready ]]'
n=0
for line; do
	zpty -wn shell "$line"$'\t'$'\x14'
	(( n++ ))
	wait_for '[[ $(wc -l <$out) -ge $n ]]'
done
zpty -d shell
cat $out
