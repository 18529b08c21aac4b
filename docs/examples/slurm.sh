#!/usr/bin/env bash
# Pretraining under Slurm: sbatch --export=ALL,RECIPE=my.yaml,CONFIG=deepspeed_configs/zero2.json docs/examples/slurm.sh
#
# Submitted from the repository's folder, which all nodes see at the same path, as they see the run folder. One task is
# one rank, with no launcher between: signals reach the ranks, and their exit code comes back. See docs/cluster.md.
#SBATCH --job-name=xlm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Three minutes before the time is up every rank hears of it, saves within the step and exits with 75.
#SBATCH --signal=USR1@180
set -uo pipefail
RECIPE="${RECIPE:?which recipe? sbatch --export=ALL,RECIPE=...}"
CONFIG="${CONFIG:-deepspeed_configs/zero2.json}"
PYTHON="${PYTHON:-.venv/bin/python}"
MOST_RESTARTS="${MOST_RESTARTS:-50}" # a rank that is killed for memory each time must not run for ever

MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT

# The variables of a rank are known in its task alone, hence the inner shell.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c '
    export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS"
    export LOCAL_RANK="$SLURM_LOCALID" LOCAL_WORLD_SIZE="$SLURM_NTASKS_PER_NODE"
    exec "$@"' rank "$PYTHON" -u pipelines/pretrain.py --recipe "$RECIPE" --deepspeed_config "$CONFIG" "$@"
code=$?

# Go on from the last checkpoint after 75 (saved after the notice, or a rank was lost: a node died, a network was cut) and, since srun
# gives the highest code of all tasks, after 137 (a rank was killed, perhaps for memory, and the others ended with 75), 138 (the notice
# came before training had begun) and 134 (NCCL noticed a lost rank first and ended another by SIGABRT).
# Anything else is final: 0 done, 2 a mistake that a sentence above names, 1 a bug, 143 ended by SIGTERM (scancel).
case "$code" in
75 | 134 | 137 | 138)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$MOST_RESTARTS" ]; then
        echo "training ended with $code; job $SLURM_JOB_ID is queued again"
        scontrol requeue "$SLURM_JOB_ID"
    fi
    ;;
esac
exit "$code"
