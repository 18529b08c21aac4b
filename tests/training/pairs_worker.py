"""One rank of `engine_worker`'s training with other options of the contrastive objective: argv[3], JSON."""

import json
import sys

import engine_worker

from xlm.config.training import ContrastiveSection

if __name__ == "__main__":
    section = ContrastiveSection(temperature=0.2, **json.loads(sys.argv[3]))
    engine_worker.TRAINING = engine_worker.TRAINING.model_copy(update={"contrastive": section})
    engine_worker.main()
