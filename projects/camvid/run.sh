#!/usr/bin/env bash
# Train the networks of the table, test each once, and write the table into README.md:
#   projects/camvid/run.sh [IMAGES]
# from a folder with data/camvid. Each network sees IMAGES (25000) in training. What is finished is skipped, what was
# interrupted goes on. Variables: JOBS networks side by side (1), NETWORKS (all), FLAGS of tools/train.py, such as --amp.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export here FLAGS=${FLAGS:-} IMAGES=${1:-25000}
export runs=work_dirs/camvid/$IMAGES
# a network, and a seed if it is not 0
networks=${NETWORKS:-resnet18 vit_ti16 xcit_t12_p16 bixt_ti biformer_t bisa_swin_t swin_t xcit_t12_p16-1}

train_and_test() {
    local dir=$runs/$1 seed=0 config
    case $1 in *-*) seed=${1#*-} ;; esac
    config=$here/configs/semfpn_${1%-*}_camvid.py
    [ -f "$dir/test/boundary.npz" ] && return
    mkdir -p "$dir"
    # shellcheck disable=SC2086  # FLAGS are words
    python3 "$here/../../tools/train.py" "$config" --work-dir "$dir" --resume $FLAGS --cfg-options randomness.seed="$seed"
    { nvidia-smi --query-gpu=name --format=csv,noheader || lscpu | sed -n 's/^Model name: *//p'; } 2>/dev/null |
        head -n 1 >"$dir/device.txt"
    python3 "$here/../../tools/test.py" "$config" "$(cat "$dir/last_checkpoint")" --boundary --work-dir "$dir/test"
}
export -f train_and_test

failed=0
# shellcheck disable=SC2086
printf '%s\n' $networks | xargs -P "${JOBS:-1}" -I{} bash -euc 'train_and_test {}' || failed=$?
python3 "$here/table.py" "$runs" --update "${README:-$here/README.md}"
exit "$failed"
