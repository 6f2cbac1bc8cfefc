# Completion: what den offers, and what bash, zsh and fish make of it when a person types.

COMPLETION=${TESTS%/*}/completion

# offers WORD...: the last one is being typed
offers() {
	"$DEN" __complete "$@" | cut -f1 | tr '\n' ' '
}

a_box_to_name() {
	"$DEN" create --name "web-one" >/dev/null
	"$DEN" exec web-one -- sh -c 'echo x >/root/x'
	"$DEN" tag web-one good
}

#@ root user
test_den_offers_what_can_come_next() {
	a_box_to_name
	is "verbs" "$(offers temp)" "template "
	is "verbs below" "$(offers template im)" "import "
	is "global options" "$(offers --st)" "--state "
	is "options" "$(offers run --max-r)" "--max-runtime "
	is "a word" "$(offers pool w)" "warm "
	is "a template" "$(offers pool warm ho)" "host "
	is "boxes" "$(offers exec we)" "web-one "
	is "boxes after --" "$(offers rm -- we)" "web-one "
	is "a value" "$(offers create --history m)" "manual "
	is "a value behind =" "$(offers create --history=m)" "--history=manual "
	is "a box as value" "$(offers merge x --into we)" "web-one "
	is "a box behind =" "$(offers merge x --into=we)" "--into=web-one "
	is "a checkpoint" "$(offers rollback web-one go)" "good "
	is "a checkpoint of a box" "$(offers show web-one@go)" "web-one@good "
	is "a checkpoint of a box, as value" "$(offers template create t --from=web-one@go)" \
		"--from=web-one@good "
	is "a checkpoint as value" "$(offers bisect web-one --from go)" "good "
	is "where no checkpoint goes" "$(offers stop web-one@go)" ""
	is "a place" "$(offers cp we)" "web-one: :file "
	is "a program's words" "$(offers exec web-one -- --st)" ":file "
	is "a program's words" "$(offers run -- ls --st)" ":file "
	is "no word that is one too many" "$(offers rollback web-one good x)" ""
	is "no verb of that name" "$(offers nosuch x)" ""
	# other boxes are somewhere else, wherever that is said
	is "elsewhere" "$(offers --state "$TMP/other" rm we)" ""
	is "elsewhere" "$(offers --state="$TMP/other" rm we)" ""
	is "elsewhere" "$(offers rm --state "$TMP/other" we)" ""
	is "elsewhere" "$(offers rm --state="$TMP/other" we)" ""
	[ ! -e other ] || fail "asking made a state directory"
	rm -rf other
	"$DEN" rm --force web-one
}

# in_bash LINE: what stands behind the word that is completed
in_bash() {
	bash --norc -c '
		source "$1"
		COMP_LINE=$2 COMP_POINT=${#2}
		_den
		printf "%s " "${COMPREPLY[@]}"' bash "$COMPLETION/den.bash" "$1"
}

#@ root user
test_bash_completes() {
	a_box_to_name
	: >a-file.tar
	is verb "$(in_bash 'den templ')" "template "
	is "verb below" "$(in_bash 'den template expo')" "export "
	is option "$(in_bash 'den run --max-r')" "--max-runtime "
	is box "$(in_bash 'den exec we')" "web-one "
	is place "$(in_bash 'den cp we')" "web-one: "
	is file "$(in_bash 'den template import a-f')" "a-file.tar "
	# a word begins anew behind these
	is value "$(in_bash 'den create --history=ma')" "manual "
	is checkpoint "$(in_bash 'den show web-one@go')" "good "
	is "file behind =" "$(in_bash 'den template pull --ca=a-f')" "a-file.tar "
	"$DEN" rm --force web-one
}

# in_zsh TYPED...: the line as it is after the Tab key, for each
in_zsh() {
	PATH=${DEN%/*}:$PATH zsh -f "$TESTS/programs/complete.zsh" "$COMPLETION" "$TMP/zsh.out" "$@"
}

#@ root user
test_zsh_completes() {
	command -v zsh >/dev/null || skip "zsh is not installed"
	a_box_to_name
	: >a-file.tar
	in_zsh 'den templ' 'den template expo' 'den run --max-r' 'den exec we' 'den cp we' \
		'den template import a-f' 'den create --history=ma' 'den create --history ma' \
		'den show web-one@go' 'den template pull --ca=a-f' 'den tag --state=/nonexistent we' \
		'den rollback web-one go' >got
	cat >want <<-'END'
		den template |
		den template export |
		den run --max-runtime |
		den exec web-one |
		den cp web-one:|
		den template import a-file.tar |
		den create --history=manual |
		den create --history manual |
		den show web-one@good |
		den template pull --ca=a-file.tar |
		den tag --state=/nonexistent we|
		den rollback web-one good |
	END
	diff want got || fail "zsh completes otherwise"
	"$DEN" rm --force web-one
}

# in_fish TYPED: what is offered, without descriptions
in_fish() {
	PATH=${DEN%/*}:$PATH fish --no-config -c 'source $argv[1]; complete -C $argv[2]' \
		"$COMPLETION/den.fish" "$1" | cut -f1 | tr '\n' ' '
}

#@ root user
test_fish_completes() {
	command -v fish >/dev/null || skip "fish is not installed"
	a_box_to_name
	: >a-file.tar
	is verb "$(in_fish 'den templ')" "template "
	is "verb below" "$(in_fish 'den template expo')" "export "
	is option "$(in_fish 'den run --max-r')" "--max-runtime "
	is box "$(in_fish 'den exec we')" "web-one "
	is place "$(in_fish 'den cp we')" "web-one: "
	is file "$(in_fish 'den template import a-f')" "a-file.tar "
	is value "$(in_fish 'den create --history=ma')" "--history=manual "
	is checkpoint "$(in_fish 'den show web-one@go')" "web-one@good "
	is "file behind =" "$(in_fish 'den template pull --ca=a-f')" "--ca=a-file.tar "
	grep -q 'Make\|make\|template' <<<"$(PATH=${DEN%/*}:$PATH fish --no-config -c \
		'source $argv[1]; complete -C "den templ"' "$COMPLETION/den.fish" | cut -f2)" ||
		fail "no description"
	"$DEN" rm --force web-one
}
