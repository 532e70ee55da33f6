import os
import sys
from types import SimpleNamespace

import pytest

from tests.tuner.space.devices import cuda_device
from tuner.errors import EnvironmentProblem
from workers.backends.cuda.nvml import Nvml, children_of, count_others, occupants, parent_of
from workers.bench.availability import if_free
from workers.devices.occupants import Occupant


class NVMLError(Exception):
    pass


def library() -> SimpleNamespace:
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0,
        nvmlDeviceGetClockInfo=lambda handle, which: {1: 1980, 2: 2619}[which],
        nvmlDeviceGetPowerUsage=lambda handle: 312_400,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 5_000,
        nvmlDeviceGetMigMode=lambda handle: [0, 0],
        nvmlDeviceGetTemperature=lambda handle, which: 51,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            SimpleNamespace(pid=os.getpid()),
            SimpleNamespace(pid=1),
        ],
    )


@pytest.fixture
def nvml(monkeypatch) -> SimpleNamespace:
    made = library()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_without_a_driver_nothing_is_told() -> None:
    assert Nvml("0000:00:00.0").read() is None


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0x1, ()), (0x2, ()), (0x4, ("power cap",)), (0x88, ("hardware slowdown", "power brake"))],
)
def test_only_reasons_that_spoil_a_timing_count(nvml, bits, words) -> None:
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: bits
    seen = Nvml("a bus").read()
    assert seen is not None
    assert seen.throttled == words
    assert (seen.sm_mhz, seen.memory_mhz, seen.watts, seen.celsius) == (1980, 2619, 312.4, 51)
    assert seen.others == 1


def test_a_library_that_fails_tells_nothing(nvml) -> None:
    def fail(handle: object) -> int:
        raise NVMLError

    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = fail
    assert Nvml("a bus").read() is None


def test_energy_is_read_of_a_whole_gpu_alone(nvml) -> None:
    assert Nvml("a bus").millijoules() == 5_000.0
    nvml.nvmlDeviceGetMigMode = lambda handle: [1, 1]
    assert Nvml("a bus").millijoules() is None

    def fail(handle: object) -> int:
        raise NVMLError

    nvml.nvmlDeviceGetMigMode = fail  # an older GPU
    assert Nvml("a bus").millijoules() == 5_000.0
    nvml.nvmlDeviceGetTotalEnergyConsumption = fail
    assert Nvml("a bus").millijoules() is None


def test_without_a_driver_no_energy_is_told() -> None:
    assert Nvml("0000:00:00.0").millijoules() is None


def test_what_was_read_a_moment_ago_is_current(nvml, monkeypatch) -> None:
    reads = []

    def watts(handle: object) -> int:
        reads.append(1)
        return 1000 * len(reads)

    nvml.nvmlDeviceGetPowerUsage = watts
    monkeypatch.setattr("workers.backends.cuda.nvml.FRESH_SECONDS", 60.0)
    made = Nvml("a bus")
    assert [made.read().watts for _ in range(3)] == [1, 1, 1]
    monkeypatch.setattr("workers.backends.cuda.nvml.FRESH_SECONDS", 0.0)
    assert made.read().watts == 2


def test_processes_are_listed_once_a_second_at_most(nvml) -> None:
    lists = []

    def listed(handle: object) -> list[SimpleNamespace]:
        lists.append(1)
        return []

    nvml.nvmlDeviceGetComputeRunningProcesses = listed
    made = Nvml("a bus")
    for _ in range(50):
        made.read()
    assert len(lists) == 1


OWN = os.getpid()
PARENTS = {OWN: 10, 20: 10, 21: 10, 30: 99, 31: None}


@pytest.mark.parametrize(
    ("pids", "others"),
    [
        ([OWN], 0),
        ([OWN, 20, 21], 0),
        ([OWN, 20, 30], 1),
        ([OWN, 30, 31], 2),
        ([4001], 0),
        ([4001, 4002], 1),
        ([], 0),
    ],
    ids=[
        "alone",
        "siblings",
        "a stranger",
        "two strangers",
        "numbered elsewhere",
        "and two",
        "none",
    ],
)
def test_only_processes_of_others_count(pids, others) -> None:
    assert count_others(pids, PARENTS.get, lambda _: 0) == others


def test_children_of_the_same_parent_are_no_others_where_they_are_numbered_elsewhere() -> None:
    assert count_others([4001, 4002, 4003], PARENTS.get, {10: 2}.get) == 1
    assert count_others([4001], PARENTS.get, {10: 2}.get) == 0
    assert children_of(os.getppid()) >= 1
    assert children_of(1 << 22) == 0


def test_the_parent_of_a_process_is_known_and_of_none_it_is_not() -> None:
    assert parent_of(OWN) == os.getppid()
    assert parent_of(1 << 22) is None


IDENTITY = "cuda-0000-1B-00.0-9ebbbb1a6d2be0f23a4b7d6cb2b0a1f4"
RECORDED = {
    b"GPU-9ebbbb1a-6d2b-e0f2-3a4b-7d6cb2b0a1f4": [2101, 2102, 2103, 9999],
    b"MIG-1c2d3e4f-0000-4000-8000-000000000000": [2102],
}
"""What the library lists by UUID: a process of this user, two of others, one of another host."""


@pytest.fixture
def listed(nvml, tmp_path) -> object:
    def by_uuid(uuid: bytes) -> bytes:
        if uuid not in RECORDED:
            raise NVMLError
        return uuid

    nvml.nvmlDeviceGetHandleByUUID = by_uuid
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [
        SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in RECORDED[handle]
    ]
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    other = os.getuid() + 70001
    for pid, user in ((2101, os.getuid()), (2102, other), (2103, other)):
        (tmp_path / str(pid)).mkdir()
        status = f"Name:\tpython3\nUmask:\t0022\nUid:\t{user}\t{user}\t{user}\t{user}\n"
        (tmp_path / str(pid) / "status").write_text(status)
    return tmp_path


def test_processes_of_other_users_are_named(listed) -> None:
    user = f"user {os.getuid() + 70001}"
    assert [str(one) for one in occupants(IDENTITY, listed)] == [
        f"{user} (process 2102, python3)",
        f"{user} (process 2103, python3)",
    ]
    slice_of_one = "cuda-0000-1B-00.0-1c2d3e4f000040008000000000000000"
    assert [one.pid for one in occupants(slice_of_one, listed)] == [2102]


def test_where_the_library_or_the_ids_say_nothing_no_process_is_named(listed, monkeypatch) -> None:
    assert occupants(f"cuda-0000-1B-00.0-{'0' * 32}", listed) == ()
    assert occupants("cuda-0000-1B-00.0-", listed) == ()
    container = listed / "self" / "ns" / "pid"
    container.unlink()
    container.symlink_to("pid:[4026532281]")
    assert occupants(IDENTITY, listed) == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert occupants(IDENTITY, listed) == ()


def test_a_device_that_another_user_works_on_is_left_alone(monkeypatch) -> None:
    who = Occupant(pid=7, user="ann", command="train.py")
    held = {"cuda-held": (who,)}
    adapter = SimpleNamespace(occupants=lambda identity: held.get(identity, ()))
    monkeypatch.setattr("workers.bench.availability.adapter_of", lambda _: adapter)
    device = cuda_device(90)
    assert if_free(device, "cuda-free") is device
    with pytest.raises(EnvironmentProblem, match=r"left alone.* in use by ann \(process 7, train"):
        if_free(device, "cuda-held")
