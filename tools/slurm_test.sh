#!/usr/bin/env bash
# Evaluate with Slurm:
#   GPUS=8 tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [options of tools/test.py]
# GPUS in all, GPUS_PER_NODE and CPUS_PER_TASK on each machine, SRUN_ARGS for srun.
set -euo pipefail
usage="usage: $0 PARTITION JOB_NAME CONFIG CHECKPOINT [options of tools/test.py]"
partition=${1:?$usage} job=${2:?$usage} config=${3:?$usage} checkpoint=${4:?$usage}
gpus=${GPUS:-8}
per_node=${GPUS_PER_NODE:-$((gpus < 8 ? gpus : 8))}

# shellcheck disable=SC2086  # SRUN_ARGS is several arguments
exec srun --partition="$partition" --job-name="$job" --gres="gpu:$per_node" \
    --ntasks="$gpus" --ntasks-per-node="$per_node" --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
    python -u "$(dirname "$0")/test.py" "$config" "$checkpoint" --launcher slurm "${@:5}"
