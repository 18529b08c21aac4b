"""Write a checkpoint as plain files for one process: CHECKPOINT → OUT, one safetensors file of weights and what they are of.

Any checkpoint, whatever ranks and ZeRO stage wrote it, on any machine: neither torch nor DeepSpeed is needed, and memory does not
grow with the model. OUT is what `start_from` in a recipe and export_hf.py --checkpoint read.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from xlm.errors import exits_cleanly
from xlm.interop.output_folder import new_folder
from xlm.training.consolidate import OPTIMIZER, Consolidated, check_replaceable, consolidate


@exits_cleanly
def main() -> None:
    """Consolidate, and say what was written."""
    arguments = parser().parse_args()
    if arguments.force and arguments.output.exists():
        check_replaceable(arguments.output)
        written = replace_folder(arguments.checkpoint, arguments.output, with_optimizer=arguments.with_optimizer)
    else:
        with new_folder(arguments.output) as partial:
            written = consolidate(arguments.checkpoint, partial, with_optimizer=arguments.with_optimizer)
    print(f"consolidate: step {written.step:,}, {written.elements:,} numbers in {written.parameters} tensors, in {arguments.output}")
    if written.world_size is not None:
        moments = ", ".join(written.moments) or "nothing yet, no step was applied"
        print(f"consolidate: {OPTIMIZER} from {written.world_size} ranks' files: {moments}")


def replace_folder(checkpoint: Path, output: Path, *, with_optimizer: bool) -> Consolidated:
    """Write beside ``output`` and put it there once it is whole."""
    fresh, old = (output.with_name(f".{output.name}.{what}") for what in ("new", "old"))
    for left_over in (fresh, old):  # of a run that was killed
        if left_over.exists():
            shutil.rmtree(left_over)
    with new_folder(fresh) as partial:
        written = consolidate(checkpoint, partial, with_optimizer=with_optimizer)
    output.rename(old)
    fresh.rename(output)
    shutil.rmtree(old)
    return written


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    result = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    result.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="folder like train/checkpoints/step-00000100")
    result.add_argument("output", type=Path, metavar="OUT", help="folder to write; must not exist")
    result.add_argument("--with-optimizer", action="store_true", help=f"its state too, by parameter name, in {OPTIMIZER}")
    result.add_argument("--force", action="store_true", help="replace OUT where it was written by this script")
    return result


if __name__ == "__main__":
    main()
