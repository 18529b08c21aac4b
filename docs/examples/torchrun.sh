#!/usr/bin/env bash
# Pretraining by torchrun, the same command on every node:
#   FIRST=node-a NODES=2 NODE=0 RECIPE=my.yaml docs/examples/torchrun.sh    (on node-a)
#   FIRST=node-a NODES=2 NODE=1 RECIPE=my.yaml docs/examples/torchrun.sh    (on node-b)
#
# torchrun would start ranks again in the same job (--max-restarts), on the nodes that are left too; training resumes from
# its checkpoint in any case, so it is left to whoever started this to do so. See docs/cluster.md.
set -euo pipefail
FIRST="${FIRST:?name or address of node 0, as all nodes know it}"
RECIPE="${RECIPE:?which recipe?}"
NODES="${NODES:-1}"
NODE="${NODE:-0}"
RANKS_PER_NODE="${RANKS_PER_NODE:-1}"
PORT="${PORT:-29500}"
CONFIG="${CONFIG:-deepspeed_configs/zero2.json}"
PYTHON="${PYTHON:-.venv/bin/python}"
cd "$(dirname "$0")/../.."

exec "$PYTHON" -m torch.distributed.run \
    --nnodes "$NODES" --node_rank "$NODE" --nproc_per_node "$RANKS_PER_NODE" \
    --master_addr "$FIRST" --master_port "$PORT" --max-restarts 0 \
    pipelines/pretrain.py --recipe "$RECIPE" --deepspeed_config "$CONFIG" "$@"
