"""One rank that waits for work of rank 0 which takes longer than a collective may; argv: "done" or "refused"."""

import errno
import sys
import time

from xlm.errors import UserError
from xlm.training.distributed import Process, join_group, main_does


def work():
    time.sleep(5)
    if sys.argv[1] == "refused":
        raise OSError(errno.EROFS, "Read-only file system", "train")
    return {"by": process.rank}


process = Process.from_environment()
join_group(process, timeout_s=3)
try:
    print(main_does(work, process.device()))
except UserError as error:
    print(error)
