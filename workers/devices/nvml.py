"""What NVIDIA's management library tells of a GPU at work: clocks, power, temperature, throttling.

Optional: without the library, the driver or the permission, nothing is told. Owns the words for
reasons of throttling; what follows from them is for the bench.
"""

from typing import Any

from workers.devices.port import Vitals

_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of the reasons that make a timing worthless; idling and set clocks are none."""


class Telemetry:
    """One GPU, by its PCI bus id."""

    def __init__(self, bus: str) -> None:
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
        except Exception:
            return
        self._nvml = pynvml

    def read(self) -> Vitals | None:
        """How the GPU is now; ``None`` where that cannot be asked."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
            return Vitals(
                sm_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
                memory_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
                watts=nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                celsius=int(nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)),
                throttled=tuple(word for bit, word in _REASONS.items() if bits & bit),
                processes=len(nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)),
            )
        except nvml.NVMLError:
            return None
