# fish completion for den. den itself knows what can come next; see "den __complete".
function __den_complete
	set -l words (commandline -opc)
	set -l typed (commandline -ct)
	set -l found ($words[1] __complete $words[2..-1] "$typed" 2>/dev/null)
	# "--name=" of "--name=val" stands before each file
	set -l lead (string match -r -- '^--[^=]*=' "$typed")
	for line in $found
		if test "$line" = ":file"
			for path in (__fish_complete_path (string replace -- "$lead" '' "$typed"))
				printf '%s\n' "$lead$path"
			end
		else
			printf '%s\n' $line
		end
	end
end
complete -c den -f -a '(__den_complete)'
