import os
import stat

import numpy as np
from safetensors.numpy import save_file

from xlm.runs.permissions import as_other_files


def test_a_file_of_weights_is_as_readable_as_a_text_beside_it(tmp_path):
    before = os.umask(0o027)
    try:
        weights, text = tmp_path / "a.safetensors", tmp_path / "a.txt"
        save_file({"a": np.zeros(1)}, weights)
        text.write_text("a", encoding="utf-8")
        as_other_files(weights)
        assert stat.S_IMODE(weights.stat().st_mode) == stat.S_IMODE(text.stat().st_mode) == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
