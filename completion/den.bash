# bash completion for den. den itself knows what can come next; see "den __complete".
_den()
{
	local line word files= words cur

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
		while IFS= read -r line; do
			COMPREPLY+=("$line")
		done < <(compgen -f -- "$cur")
	fi
	# What stands before a colon is already on the line.
	if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
		word=${cur%"${cur##*:}"}
		COMPREPLY=("${COMPREPLY[@]#"$word"}")
	fi
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -F _den den
