"""Free memory is the least of the machine's and of every control group's around a process."""

from pathlib import Path

import psutil
import pytest

from xlm.runs.free_memory import free_memory


def group(folder: Path, limit: str, used: int, cached: int, *, version: int) -> None:
    names = ("memory.max", "memory.current", "inactive_file") if version == 2 else ()
    names = names or ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n", encoding="ascii")
    (folder / names[1]).write_text(f"{used}\n", encoding="ascii")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n", encoding="ascii")


def asked(tmp_path: Path, lines: str) -> int:
    (tmp_path / "process").write_text(lines, encoding="ascii")
    return free_memory(tmp_path / "process", tmp_path / "groups")


def test_a_job_has_what_its_group_and_those_around_it_leave(tmp_path):
    job = tmp_path / "groups" / "slurm" / "job_7"
    group(job, "9000", 4000, 500, version=2)
    group(job / "step_0", "max", 4000, 500, version=2)
    assert asked(tmp_path, "0::/slurm/job_7/step_0\n") == 5500
    group(job / "step_0", "5000", 4000, 0, version=2)
    assert asked(tmp_path, "0::/slurm/job_7/step_0\n") == 1000


def test_a_container_sees_its_own_group_at_the_root(tmp_path):
    group(tmp_path / "groups", "3000", 1000, 0, version=2)
    assert asked(tmp_path, "0::/kubepods/burstable/pod1\n") == 2000


def test_the_first_version_of_control_groups(tmp_path):
    group(tmp_path / "groups" / "memory" / "job", "9000", 4000, 500, version=1)
    assert asked(tmp_path, "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n") == 5500


@pytest.mark.parametrize("lines", ["", "4:memory:/nowhere\n0::/\n"])
def test_without_a_limit_it_is_the_machines(tmp_path, lines):
    machines = psutil.virtual_memory().available
    assert abs(asked(tmp_path, lines) - machines) < 2**30


def test_this_machine_has_some():
    assert 2**20 < free_memory() <= psutil.virtual_memory().total
