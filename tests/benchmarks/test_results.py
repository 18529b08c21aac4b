import importlib.util
import json
from pathlib import Path

import numpy as np

spec = importlib.util.spec_from_file_location("benchmark_results", Path(__file__).parents[2] / "benchmarks" / "results.py")
results = importlib.util.module_from_spec(spec)
spec.loader.exec_module(results)


def test_figures_are_written_with_what_they_were_measured_on(tmp_path):
    path = results.write_results("data", {"loader": np.float64(2.5)}, {"ours": 5.0, "peer": 2.0}, folder=tmp_path / "results")
    written = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "results" / "data.json"
    assert written["ratios"] == {"loader": 2.5}
    assert written["raw"] == {"ours": 5.0, "peer": 2.0}
    assert written["versions"]["numpy"] == np.__version__
    assert "python" in written["versions"]
    assert written["machine"]["cores"] >= 1
    assert written["machine"]["memory_bytes"] > 1 << 28
