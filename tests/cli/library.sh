# The library in another program.

#@ root user range
test_a_program_that_embeds_the_library_works() {
	local program
	for program in embed embed-shared; do
		[ -x "$PROGRAMS/$program" ] || fail "$program was not built"
		try env DEN_EXE="$DEN" LD_LIBRARY_PATH="$PROGRAMS" "$PROGRAMS/$program"
		want_rc 0
		want_out_has '^result: 5050$'
		no_boxes || fail "$program left a box: $(boxes)"
	done
}

#@ root user
test_a_library_without_den_says_what_is_missing() {
	# DEN_EXE names a program that is not there: the error is the caller's to see.
	try env DEN_EXE=/nonexistent "$PROGRAMS/embed"
	[ "$rc" != 0 ] || fail "worked without a keeper"
	want_err_has 'nonexistent|DEN_EXE'
}
