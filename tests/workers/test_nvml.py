from types import SimpleNamespace

import pytest

from workers.devices.nvml import Telemetry


class NVMLError(Exception):
    pass


def library(reasons: int) -> SimpleNamespace:
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: reasons,
        nvmlDeviceGetClockInfo=lambda handle, which: {1: 1980, 2: 2619}[which],
        nvmlDeviceGetPowerUsage=lambda handle: 312_400,
        nvmlDeviceGetTemperature=lambda handle, which: 51,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [1, 2],
    )


def telemetry(reasons: int) -> Telemetry:
    made = Telemetry("no such bus")
    made._nvml, made._handle = library(reasons), None
    return made


def test_without_a_driver_nothing_is_told() -> None:
    assert Telemetry("0000:00:00.0").read() is None


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0x1, ()), (0x2, ()), (0x4, ("power cap",)), (0x88, ("hardware slowdown", "power brake"))],
)
def test_only_reasons_that_spoil_a_timing_count(bits, words) -> None:
    seen = telemetry(bits).read()
    assert seen is not None
    assert seen.throttled == words
    assert str(seen) == "SM 1980 MHz, memory 2619 MHz, 312 W, 51 °C"
    assert seen.processes == 2


def test_a_library_that_fails_tells_nothing() -> None:
    made = telemetry(0)

    def fail(handle: object) -> int:
        raise NVMLError

    made._nvml.nvmlDeviceGetCurrentClocksThrottleReasons = fail
    assert made.read() is None
