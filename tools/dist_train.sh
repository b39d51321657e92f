#!/usr/bin/env bash
# Train on several GPUs of one or more machines:
#   tools/dist_train.sh CONFIG GPUS [options of tools/train.py]
# On several machines start it on each, with NNODES, NODE_RANK and MASTER_ADDR set.
set -euo pipefail
usage="usage: $0 CONFIG GPUS [options of tools/train.py]"
config=${1:?$usage} gpus=${2:?$usage}
[[ $gpus =~ ^[0-9]+$ ]] || { echo "GPUS is '$gpus', not a number. $usage" >&2; exit 2; }

exec torchrun \
    --nnodes="${NNODES:-1}" --node-rank="${NODE_RANK:-0}" --nproc-per-node="$gpus" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" --master-port="${PORT:-29500}" \
    "$(dirname "$0")/train.py" "$config" --launcher pytorch "${@:3}"
