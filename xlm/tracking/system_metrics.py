"""What the machine of rank 0 is doing, under the names that MLflow's own monitor gives it.

The UI shows metrics whose name begins with ``system/`` on a page of their own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil

PREFIX = "system/"
INTERVAL_S = 10.0
_MEGABYTE = 1e6


class SystemMetrics:
    """Samples processor, memory, disk, network and, where there is NVIDIA's library, each GPU."""

    def __init__(self, disk: Path = Path("/")) -> None:
        """``disk`` is any path of the file system to watch; it need not exist yet."""
        self._disk = next(path for path in (disk.resolve(), *disk.resolve().parents) if path.exists())
        psutil.cpu_percent()  # the next call says what happened since
        network = psutil.net_io_counters()
        self._received_bytes, self._sent_bytes = (network.bytes_recv, network.bytes_sent) if network else (0, 0)
        self._gpus = _gpus()

    def sample(self) -> dict[str, float]:
        """Return the metrics by name; the processor's use is the mean since the last sample, the network's a sum since the start."""
        memory = psutil.virtual_memory()
        found = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / _MEGABYTE,
            "system_memory_usage_percentage": 100.0 * memory.used / memory.total,
            "process_memory_usage_megabytes": psutil.Process().memory_info().rss / _MEGABYTE,
        }
        with contextlib.suppress(OSError):
            disk = psutil.disk_usage(str(self._disk))
            found["disk_usage_percentage"] = disk.percent
            found["disk_usage_megabytes"] = disk.used / _MEGABYTE
            found["disk_available_megabytes"] = disk.free / _MEGABYTE
        network = psutil.net_io_counters()
        if network:
            found["network_receive_megabytes"] = (network.bytes_recv - self._received_bytes) / _MEGABYTE
            found["network_transmit_megabytes"] = (network.bytes_sent - self._sent_bytes) / _MEGABYTE
        for number, handle in enumerate(self._gpus):
            found.update(_of_gpu(number, handle))
        return {PREFIX + name: round(float(value), 3) for name, value in found.items()}


def _gpus() -> list[Any]:
    """Return NVML's handles; none without a GPU, its driver, or the package nvidia-ml-py."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # noqa: BLE001 (a machine without a GPU says so in many ways)
        return []


def _of_gpu(number: int, handle: Any) -> dict[str, float]:  # noqa: ANN401 (a ctypes pointer)
    import pynvml

    found: dict[str, float] = {}
    with contextlib.suppress(pynvml.NVMLError):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        found[f"gpu_{number}_memory_usage_megabytes"] = memory.used / _MEGABYTE
        found[f"gpu_{number}_memory_usage_percentage"] = 100.0 * memory.used / memory.total
    with contextlib.suppress(pynvml.NVMLError):
        found[f"gpu_{number}_utilization_percentage"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    with contextlib.suppress(pynvml.NVMLError):
        found[f"gpu_{number}_power_usage_watts"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return found
