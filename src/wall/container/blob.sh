#!/bin/sh
# blob.sh FILE OUT NAME: an assembler file that carries FILE as NAME and NAME_end.
set -eu
cat > "$2" <<END
.section .rodata
.global $3, $3_end
.balign 64
$3:
.incbin "$(realpath "$1")"
$3_end:
.byte 0
.section .note.GNU-stack,"",@progbits
END
