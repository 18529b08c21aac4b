"""One rank of a loop; argv is what its loader does: "whole", "dropped" (a row is lost), or how it fails on rank 1 at step 2.

At step 4 of "whole" the loss of rank 1's second micro-batch is NaN.

That is "user error", "bug" or "empty" (it ends early).
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import test_loop
from test_loop import Batches, CountingEngine, DroppingBatches, make_loop, unlike

from xlm.errors import UserError
from xlm.training.distributed import Process, join_group

PROBLEMS = {"user error": UserError("the shard is gone.", file="de.arrow"), "bug": ZeroDivisionError("a bug")}


class FailingBatches(Batches):
    def iterate(self, start, stop):
        for step, batches in super().iterate(start, stop):
            if process.rank == 1 and step == 2 and what in (*PROBLEMS, "empty"):
                if what == "empty":
                    return
                raise PROBLEMS[what]
            yield step, batches


class DivergingEngine(CountingEngine):
    def accumulate(self, batch, context, **options):
        loss = super().accumulate(batch, context, **options)
        return loss * float("nan") if self.keys[-1][1:] == (4, 1, 1) else loss


what = sys.argv[1]
process = Process.from_environment()
join_group(process, timeout_s=300)
test_loop.loop_module.Saver = partial(test_loop.KeptStates, {})
batches = (DroppingBatches if what == "dropped" else FailingBatches)(rank=process.rank, world_size=2)
with tempfile.TemporaryDirectory() as folder:
    try:
        engine = DivergingEngine(poison={4}) if what == "whole" else CountingEngine()
        seen = make_loop(Path(folder), engine, batches, process=process, unlike_plan=unlike).run(None).seen
        for path in Path(folder).glob("skipped.jsonl"):
            print(path.read_text(encoding="utf-8").strip())
        print((sorted(seen.tokens.items()), sorted(seen.rows.items())))
    except (UserError, RuntimeError) as error:
        print(type(error).__name__, error, "|", type(error.__cause__).__name__)
