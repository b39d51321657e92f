#!/usr/bin/env bash
# Evaluate on several GPUs of one or more machines:
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [options of tools/test.py]
# On several machines start it on each, with NNODES, NODE_RANK and MASTER_ADDR set.
set -euo pipefail
usage="usage: $0 CONFIG CHECKPOINT GPUS [options of tools/test.py]"
config=${1:?$usage} checkpoint=${2:?$usage} gpus=${3:?$usage}
[[ $gpus =~ ^[0-9]+$ ]] || { echo "GPUS is '$gpus', not a number. $usage" >&2; exit 2; }

exec torchrun \
    --nnodes="${NNODES:-1}" --node-rank="${NODE_RANK:-0}" --nproc-per-node="$gpus" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" --master-port="${PORT:-29500}" \
    "$(dirname "$0")/test.py" "$config" "$checkpoint" --launcher pytorch "${@:4}"
