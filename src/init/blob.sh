#!/bin/sh
# blob.sh INIT OUT: an assembler file that carries the program INIT, and its hash as a string.
set -eu
hash=$(sha256sum "$1" | cut -c1-16)
cat > "$2" <<END
.section .rodata
.global den_init_blob, den_init_blob_end, den_init_hash
.balign 64
den_init_blob:
.incbin "$(realpath "$1")"
den_init_blob_end:
.byte 0
den_init_hash:
.asciz "$hash"
.section .note.GNU-stack,"",@progbits
END
