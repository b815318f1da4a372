#!/bin/sh
# logits.sh ANED GGUF - `aned logits` and `aned mil run` on the stand-in: the demo model in every form gives the bits of
# `--backend interpreter --round fp16`.
set -eu
aned=$1 gguf=$2
box=$(mktemp -d "${TMPDIR:-/tmp}/aned-coreml-logits.XXXXXX")
trap 'rm -rf "$box"' EXIT
echo 'prints = 0' >"$box/faults"
export ANED_STANDIN="$box/faults"

python3 - "$box" <<'PY'
import pathlib, struct, sys
def npy(path, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
box = pathlib.Path(sys.argv[1])
ids = [1] + [5 + i * 37 % 190 for i in range(1, 70)]
npy(box / "ids.npy", "<i4", (len(ids),), struct.pack(f"<{len(ids)}i", *ids))
PY

for form in 'ranged state' 'functions state' 'ranged host' 'functions host'; do
    set -- $form
    bundle=$box/$1-$2
    "$aned" convert "$gguf" --out "$bundle" --shape "$1" --kv "$2" --context 128 >/dev/null
    "$aned" logits "$bundle" "$box/ids.npy" "$box/want.npy" --backend interpreter --round fp16
    for chunk in 1 3 64; do
        "$aned" logits "$bundle" "$box/ids.npy" "$box/got.npy" --backend coreml --chunk "$chunk"
        cmp "$box/want.npy" "$box/got.npy" || { echo "$form, chunks of $chunk: other bits"; exit 1; }
    done
    echo "$form: the same bits"
done
