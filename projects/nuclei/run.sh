#!/usr/bin/env bash
# Train the networks of the table, test each once, and write the table into README.md:
#   projects/nuclei/run.sh [ITERATIONS]
# from a folder with data/nuclei (of prepare.py). An iteration (10000) has 4 images. What is finished is skipped, what was
# interrupted goes on. Variables: JOBS networks side by side (1), NETWORKS (all), FLAGS of tools/train.py, such as --amp.
set -euo pipefail
FOLDER=$(cd "$(dirname "$0")" && pwd)
export FOLDER ITERATIONS=${1:-10000}
export RUNS=work_dirs/nuclei/$ITERATIONS CONFIG='maskrcnn_{}_nuclei.py' RESULT=predictions.segm.json
export TEST='--cfg-options test_evaluator.outfile_prefix={}/predictions'
# shellcheck disable=SC2086
exec "$FOLDER/../run_networks.sh" ${NETWORKS:-resnet18 swin_t xcit_t12_p8 biformer_t vit_ti8 bixt_ti_s8_lpi bisa_swin_t}
