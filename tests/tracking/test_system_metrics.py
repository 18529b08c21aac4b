import sys
from types import SimpleNamespace

import psutil
import pytest

from xlm.tracking.system_metrics import SystemMetrics


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_a_sample_says_what_the_system_says(tmp_path):
    watched = SystemMetrics(tmp_path / "not" / "yet")
    found = watched.sample()
    assert found["system/system_memory_usage_percentage"] == pytest.approx(psutil.virtual_memory().percent, abs=10)
    assert found["system/disk_usage_percentage"] == pytest.approx(psutil.disk_usage(str(tmp_path)).percent, abs=1)
    assert 0 <= found["system/cpu_utilization_percentage"] <= 100
    assert found["system/network_receive_megabytes"] >= 0
    assert not any("gpu" in name for name in found)


def test_a_gpu_is_shown_as_far_as_its_driver_tells(monkeypatch):
    class NVMLError(Exception):
        pass

    def no_power(_):
        raise NVMLError

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=30e9, total=120e9),
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=87),
        nvmlDeviceGetPowerUsage=no_power,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = {name: value for name, value in SystemMetrics().sample().items() if "gpu" in name}
    assert found == {
        "system/gpu_0_memory_usage_megabytes": 30000.0,
        "system/gpu_0_memory_usage_percentage": 25.0,
        "system/gpu_0_utilization_percentage": 87.0,
    }
