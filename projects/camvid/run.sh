#!/usr/bin/env bash
# Train the networks of the table, test each once, and write the table into README.md:
#   projects/camvid/run.sh [IMAGES]
# from a folder with data/camvid. Each network sees IMAGES (25000) in training. What is finished is skipped, what was
# interrupted goes on. Variables: JOBS networks side by side (1), NETWORKS (all), FLAGS of tools/train.py, such as --amp.
set -euo pipefail
FOLDER=$(cd "$(dirname "$0")" && pwd)
export FOLDER IMAGES=${1:-25000}
export RUNS=work_dirs/camvid/$IMAGES CONFIG='semfpn_{}_camvid.py' RESULT=boundary.npz TEST=--boundary
networks='resnet18 vit_ti16 xcit_t12_p16 bixt_ti biformer_t bisa_swin_t swin_t xcit_t12_p16-1' # and a seed if not 0
# shellcheck disable=SC2086
exec "$FOLDER/../run_networks.sh" ${NETWORKS:-$networks}
