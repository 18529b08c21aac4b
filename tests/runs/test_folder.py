"""Each stage has a folder of its own below the run's."""

from pathlib import Path

from xlm.runs.folder import RunFolder


def test_folders_are_distinct_and_inside():
    run = RunFolder(Path("runs/x"))
    names = [name for name, value in vars(RunFolder).items() if isinstance(value, property)]
    folders = [getattr(run, name) for name in names]
    assert len(names) == len(set(folders)) == 10
    assert all(folder.parent == run.root for folder in folders)
