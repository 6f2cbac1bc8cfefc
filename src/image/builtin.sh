#!/bin/sh
# builtin.sh OUT FILE...: an assembler file that carries a tar of the FILEs, each below the name that stands
# after its last "share/". The same files give the same bytes.
set -eu
out=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for f; do
    name=${f##*share/}
    mkdir -p "$dir/tree/$(dirname "$name")"
    cp "$f" "$dir/tree/$name"
done
chmod -R u=rwX,go=rX "$dir/tree"
tar -C "$dir/tree" --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$out.tar" builtin interpreter
cat > "$out" <<END
.section .rodata
.global den_builtin_tar, den_builtin_tar_end
.balign 64
den_builtin_tar:
.incbin "$(realpath "$out.tar")"
den_builtin_tar_end:
.byte 0
.section .note.GNU-stack,"",@progbits
END
