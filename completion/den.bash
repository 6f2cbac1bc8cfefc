# bash completion for den. den itself knows what can come next; see "den __complete".
_den()
{
	local line word files= words cur lead=

	# COMP_WORDS is split at colons and equals signs, too; den wants words as they were typed.
	words=() cur=${COMP_LINE:0:COMP_POINT}
	read -ra words <<< "$cur"
	[[ $cur == *[[:space:]] ]] && words+=('')
	cur=${words[${#words[@]}-1]}
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:file) files=1 ;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
	if [[ $files ]]; then
		compopt -o filenames 2>/dev/null
		[[ $cur == --*=* ]] && lead=${cur%%=*}=
		while IFS= read -r line; do
			COMPREPLY+=("$lead$line")
		done < <(compgen -f -- "${cur#"$lead"}")
	fi
	# For bash a word begins anew at these: what stands before is already on the line.
	word=${cur##*["${COMP_WORDBREAKS//[^:=@]/}"$'\n']}
	COMPREPLY=("${COMPREPLY[@]#"${cur%"$word"}"}")
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -F _den den
