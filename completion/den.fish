# fish completion for den. den itself knows what can come next; see "den __complete".
function __den_complete
	set -l words (commandline -opc)
	set -l found ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
	for line in $found
		if test "$line" = ":file"
			__fish_complete_path (commandline -ct)
		else
			printf '%s\n' $line
		end
	end
end
complete -c den -f -a '(__den_complete)'
