"""Scripts that start with the libraries loaded: loading takes a rank twelve seconds, what a test does in it two.

A server, multiprocessing's, loads them once and forks. A fork then runs its script as ``python script arguments`` would,
with an environment, a folder and an output of its own; its exit code, and the signals that end it, are real. What differs:
nothing is loaded anew, and functions registered with ``atexit`` are not called.
"""

import multiprocessing
import os
import runpy
import sys
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

HERE = Path(__file__).parent
CONTEXT = multiprocessing.get_context("forkserver")


class WarmScript:
    """A script that runs; the part of `subprocess.Popen` that tests use."""

    def __init__(self, command, *, env, cwd, output):
        """Start ``command``, a script and its arguments; ``output`` is the path that all it prints goes to."""
        with server_environment():
            forkserver.ensure_running()
        self._process = CONTEXT.Process(target=run, args=([*map(str, command)], env, str(cwd), str(output)))
        self._process.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        return self._process.exitcode

    def kill(self):
        self._process.kill()


@contextmanager
def server_environment():
    """What the server has to be started with; a fork's environment is the one it is given."""
    before = dict(os.environ)
    path = os.pathsep.join([str(HERE.parent), str(HERE), *filter(None, [before.get("PYTHONPATH")])])
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", PYTHONPATH=path)
    CONTEXT.set_forkserver_preload(["warm_libraries"])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(command, env, cwd, output):
    """Be the script (in the fork)."""
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(written, stream)
    os.close(written)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[:] = command
    added = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [str(Path(command[0]).parent), *added]
    runpy.run_path(command[0], run_name="__main__")
