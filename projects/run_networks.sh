#!/usr/bin/env bash
# Train the networks of a study, test each once, and write the table into its README.md. The run.sh of a study, which
# gives the networks and these variables, calls this:
#   FOLDER of the study, RUNS (folder of the work dirs), CONFIG and RESULT (see below)
#   TEST: arguments of tools/test.py; {} is the folder of the test
# What is finished is skipped, what was interrupted goes on. A network's name may end with a seed, such as resnet18-1.
set -euo pipefail
export FOLDER RUNS CONFIG RESULT TEST FLAGS=${FLAGS:-}

train_and_test() {
    local dir=$RUNS/$1 seed=0 config=$FOLDER/configs/${CONFIG/\{\}/${1%-*}}
    case $1 in *-*) seed=${1#*-} ;; esac
    [ -f "$dir/test/$RESULT" ] && return
    mkdir -p "$dir"
    # shellcheck disable=SC2086  # FLAGS and TEST are words
    python3 "$FOLDER/../../tools/train.py" "$config" --work-dir "$dir" --resume $FLAGS --cfg-options randomness.seed="$seed"
    { nvidia-smi --query-gpu=name --format=csv,noheader || lscpu | sed -n 's/^Model name: *//p'; } 2>/dev/null |
        head -n 1 >"$dir/device.txt"
    # shellcheck disable=SC2086
    python3 "$FOLDER/../../tools/test.py" "$config" "$(cat "$dir/last_checkpoint")" --work-dir "$dir/test" ${TEST//\{\}/$dir/test}
}
export -f train_and_test

failed=0
printf '%s\n' "$@" | xargs -P "${JOBS:-1}" -I{} bash -euc 'train_and_test {}' || failed=$?
python3 "$FOLDER/table.py" "$RUNS" --update "${README:-$FOLDER/README.md}"
exit "$failed"
