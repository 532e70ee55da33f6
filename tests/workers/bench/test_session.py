"""How a session times: its requests to the child, recorded on the way to a real one."""

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.workers.bench.test_device_bench import AFFINE, GOOD, HANG
from tests.workers.harness import QUICK, Laboratory, opened_oracle, recorded_processes, supervisor
from tests.workers.test_process import alive
from tuner.experiment.model import Cache, Measure
from tuner.telemetry import Vitals
from tuner.trial import Code, Measured, Rejected
from workers.bench.deadlines import Deadlines
from workers.bench.input_specs import FIRST, FLIPPED
from workers.bench.launcher import LoadedCandidate
from workers.bench.protocol import REQUESTS, InspectSet, RunBurst
from workers.bench.session import BenchSession
from workers.bench.supervisor import Supervisor
from workers.devices.port import DeviceFailure, Rotation
from workers.integrity.launch_checks import VerificationCase
from workers.integrity.time_bounds import Bounds, refuse_implausible
from workers.process import Child

HANGS_LATER = "global int runs[65536];\n" + GOOD.replace(
    "if (i < n)", "while (runs[i] > 4) out[i] = runs[i]; runs[i]++; if (i < n)"
)

HOPELESS = GOOD.replace(
    "if (i < n)", "volatile int k = 0; while (i == 0 && k < 1000000000) ++k; if (i < n)"
)
"""It takes some tenths of a second, thousands of times as long as the baseline."""

WRONG_THEN_CRASHES = "global int runs[65536];\n" + GOOD.replace(
    "if (i < n)", "if (runs[i]++ > 2) *(volatile global int *)(ulong)n = 1; if (i < n)"
).replace("2 * x[i]", "3 * x[i]")


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    made = Laboratory(AFFINE)
    yield made
    made.close()


@dataclass(frozen=True, slots=True)
class Timing:
    """A session in a child of its own, with the baseline loaded and checked on a staged case."""

    server: Supervisor
    session: BenchSession
    baseline: LoadedCandidate
    case: VerificationCase

    def samples(self, measure: Measure, cache: Cache = "cold", **more: float) -> list[float]:
        return self.session.time(self.baseline, self.case, cache, measure, **more)


@pytest.fixture(scope="module")
def open_timing(laboratory, tmp_path_factory) -> Iterator[Callable[[float], Timing]]:
    """Opens a timing on a device whose empty launch takes so many nanoseconds."""
    folder = tmp_path_factory.mktemp("timing")
    servers = []

    def opened(launch_ns: float = 0.0) -> Timing:
        servers.append(server := supervisor(folder))
        session = BenchSession(
            server,
            prep,
            QUICK,
            np.random.default_rng(2),
            replace(prep.bounds, launch_ns=launch_ns),
        )
        session.stage([case], ("cold", "hot"), repeats=20)
        baseline = session.load(prep.setup.baseline)
        session.check(baseline, case, exact=False)
        return Timing(server, session, baseline, case)

    with opened_oracle(laboratory, folder) as (prep, oracle):
        case = oracle.case(0, FIRST)
        assert isinstance(case, VerificationCase)
        yield opened
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def timing(open_timing) -> Timing:
    return open_timing()


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[RunBurst]:
    """Every request to launch from now on."""
    seen: list[RunBurst] = []
    real = Supervisor.run_bursts

    def record(server, shots, *more, **options):
        seen.extend(shots)
        return real(server, shots, *more, **options)

    monkeypatch.setattr(Supervisor, "run_bursts", record)
    return seen


@pytest.fixture
def launched(monkeypatch) -> list[int]:
    return recorded_processes(monkeypatch)


@pytest.fixture
def fired(laboratory, monkeypatch) -> list[RunBurst]:
    """Every request to launch that a good candidate causes, on a child that is warm."""
    laboratory.outcome(f"{GOOD} /* warm */")
    return recorded(monkeypatch)


def bursts(fired: list[RunBurst]) -> list[RunBurst]:
    return [each for each in fired if len(each.order) > 1]


def trial(laboratory: Laboratory, name: str) -> None:
    assert isinstance(laboratory.outcome(f"{GOOD} /* {name} */"), Measured)


def test_cold_bursts_visit_every_set_once_in_random_order(laboratory, fired) -> None:
    trial(laboratory, "order")
    full = [each.order for each in bursts(fired) if len(each.order) == 16]
    assert full
    assert all(sorted(order) == list(range(16)) for order in full)
    cycles = {order[order.index(0) :] + order[: order.index(0)] for order in full}
    assert len(cycles) > 1, "a random order for each shape"
    assert tuple(range(16)) not in cycles


def test_each_shape_is_checked_before_it_is_timed(laboratory, fired) -> None:
    trial(laboratory, "before")
    begins = [place for place, each in enumerate(fired) if len(each.order) > 1]
    first = fired[0]
    other = next(each for each in fired if each.launchable > first.launchable + 1)
    assert begins[0] == 1
    for each in (first, other):
        assert each.order == (each.inspect,)


def test_timing_is_checked_at_points_that_change(laboratory, fired) -> None:
    places = set()
    for number in range(4):
        fired.clear()
        trial(laboratory, f"points {number}")
        found = bursts(fired)
        checked = [place for place, each in enumerate(found) if each.inspect is not None]
        assert len(checked) >= 4
        places.add(tuple(checked))
    assert len(places) > 1


def test_one_burst_ends_early_with_all_other_sets_restored_and_inspected(laboratory, fired) -> None:
    trial(laboratory, "cut")
    early = [each for each in fired if each.idle]
    assert len({each.launchable for each in early}) >= 2, "one in each timing of each shape"
    assert all(each.restored == tuple(range(16)) for each in early)


def test_poison_is_in_turn_no_number_and_an_ordinary_one(laboratory, fired) -> None:
    trial(laboratory, "poison")
    none, ordinary = {0xFF, 0x7F, 0xFE, 0x7E}, {0x3C, 0x3F, 0xBD, 0x2E}
    poisoned = [each.poison for each in fired if each.poison is not None]
    assert set(poisoned) <= none | ordinary
    kinds = [poison in none for poison in poisoned]
    assert all(first != second for first, second in itertools.pairwise(kinds))


def test_changed_elements_are_asked_while_the_last_answer_stands(laboratory, fired) -> None:
    trial(laboratory, "standing")
    asked = [(before, each) for before, each in itertools.pairwise(fired) if each.poison is None]
    assert len(asked) == 2, "one for each shape"
    for before, each in asked:
        assert before.order == each.order == (each.inspect,)
        assert before.poison is not None


def test_no_launch_that_is_checked_or_timed_may_take_as_long_as_a_compile(
    laboratory, fired
) -> None:
    trial(laboratory, "deadlines")
    longer = [each for each in fired if each.deadline > 1.0]
    assert [each.deadline for each in longer] == [2.0, 2.0], "with the one that awakened it"
    assert len({each.launchable for each in longer}) == 2, "one for each shape"


def test_an_error_that_rarely_shows_is_found_by_repeating(laboratory, timing) -> None:
    rarely = "global int runs[65536];\n" + GOOD.replace(
        "if (i < n)", "if (runs[i]++ % 30 == 29) return; if (i < n)"
    )
    loaded = timing.session.load(laboratory.candidate(rarely))
    timing.session.check(loaded, timing.case, exact=False)
    timing.session.check_repeatedly(loaded, timing.case, 20)
    with pytest.raises(DeviceFailure, match="out"):
        timing.session.check_repeatedly(loaded, timing.case, 20)
    timing.session.check_repeatedly(timing.baseline, timing.case, 20)


def test_a_kernel_that_hangs_at_its_first_launch_costs_its_deadline() -> None:
    patient = Laboratory(AFFINE, deadlines=Deadlines(launch=1.0, first=60.0))
    began = time.monotonic()
    outcome = patient.outcome(HANG)
    seconds = time.monotonic() - began
    patient.close()
    assert isinstance(outcome, Rejected)
    assert outcome.code == Code.HANG
    assert seconds < 10.0


@pytest.mark.parametrize("source", [HANGS_LATER, HOPELESS], ids=["hangs", "hopelessly slow"])
def test_a_kernel_that_comes_to_no_end_in_a_burst_costs_its_deadline(laboratory, source) -> None:
    began = time.monotonic()
    outcome = laboratory.outcome(source)
    assert isinstance(outcome, Rejected)
    assert outcome.code == Code.HANG
    assert time.monotonic() - began < 6.0, "not one deadline for each launch of the burst"


@pytest.mark.parametrize("apart", [True, False])
def test_what_is_wrong_before_it_crashes_is_told_first(laboratory, monkeypatch, apart) -> None:
    real = Supervisor.run_bursts
    monkeypatch.setattr(
        Supervisor,
        "run_bursts",
        lambda self, shots, slowest=0.0, **_: real(self, shots, slowest, apart=apart),
    )
    launched = recorded_processes(monkeypatch)
    outcome = laboratory.outcome(WRONG_THEN_CRASHES.replace("3 *", "4 *" if apart else "3 *"))
    assert isinstance(outcome, Rejected)
    assert outcome.code == Code.WRONG_RESULT
    assert alive(launched[-1]) is apart, "all are carried out first, or nothing behind"
    trial(laboratory, f"after a crash behind a wrong answer, apart: {apart}")


def test_nothing_that_a_cpu_s_child_holds_while_it_launches_says_what_is_looked_at(
    laboratory, launched, monkeypatch
) -> None:
    laboratory.outcome(f"{GOOD} /* warm for frames */")
    send, frames, bench = Child.send, [], launched[-1]

    def record(child, text, *more, **options):
        if child.pid == bench:
            frames.append(text)
        send(child, text, *more, **options)

    monkeypatch.setattr(Child, "send", record)
    trial(laboratory, "frames")
    asked = [REQUESTS.validate_json(text) for text in frames]
    fires = [one for requests in asked for one in requests if isinstance(one, RunBurst)]
    looks = [requests for requests in asked if any(isinstance(one, InspectSet) for one in requests)]
    assert all(one.inspect is None and not one.expected for one in fires)
    assert len(looks) >= 8
    assert all(len(requests) == 1 for requests in looks)
    spare = [len({*one.restored} - {*one.order}) for one in fires if len({*one.restored}) < 16]
    assert set(spare[-8:]) <= {0, 1}
    assert spare.count(1) > spare.count(0), (
        "one more is restored than launched on, looked at or not"
    )


def test_on_inputs_of_its_own_some_rows_of_a_large_output_are_compared(
    laboratory, open_timing, monkeypatch
) -> None:
    monkeypatch.setattr("workers.bench.output_parts.COMPARED", 100)
    timing = open_timing()
    session, case, baseline = timing.session, timing.case, timing.baseline
    false = session.load(laboratory.candidate(f"{GOOD} // in part".replace("2 *", "3 *")))
    with pytest.raises(DeviceFailure) as wrong:
        session.time_on_own_inputs(false, case, "cold", baseline)
    told = r"100 of 100 elements wrong.*; inputs of its own; indices within out\[\d+:\]$"
    assert re.search(told, wrong.value.detail)
    assert session.time_on_own_inputs(baseline, case, "cold", baseline) > 0


def test_on_a_gpu_launches_that_are_not_looked_at_go_along_with_the_next(
    laboratory, tmp_path, monkeypatch
) -> None:
    """The session takes the device for a GPU, which it is not."""
    server = supervisor(tmp_path)
    false = laboratory.candidate(f"{GOOD} // on a GPU".replace("2 *", "3 *"))
    crash = laboratory.candidate(WRONG_THEN_CRASHES.replace("3 *", "2 *"))
    with opened_oracle(laboratory, tmp_path) as (prep, oracle), closing(server):
        first, flipped = (oracle.case(0, spec) for spec in (FIRST, FLIPPED))
        session = BenchSession(
            server,
            replace(prep, device=replace(prep.device, is_cpu=False)),
            QUICK,
            np.random.default_rng(3),
            prep.bounds,
        )
        session.stage([first], ("cold",), repeats=20)
        baseline = session.load(prep.setup.baseline)
        session.check(baseline, flipped, exact=False)
        send, frames = Child.send, []

        def record(child, text, *more, **options):
            frames.append(REQUESTS.validate_json(text))
            send(child, text, *more, **options)

        monkeypatch.setattr(Child, "send", record)
        session.check(baseline, flipped, exact=False)
        looked = [
            [one.inspect is not None for one in frame if isinstance(one, RunBurst)]
            for frame in frames
        ]
        assert len(looked) == 2, "on poisoned outputs, and on the last answer"
        assert all(len(each) > 1 and each.index(True) == len(each) - 1 for each in looked)
        loaded = session.load(false)
        with pytest.raises(DeviceFailure, match="wrong"):
            session.check(loaded, flipped, exact=False)
        loaded = session.load(crash)

        def check_often() -> None:
            for _ in range(8):
                session.check(loaded, flipped, exact=False)

        with pytest.raises(DeviceFailure) as failed:
            check_often()
        assert failed.value.sticky


def test_what_one_trial_leaves_to_be_done_is_not_the_next_one_s_fault(laboratory, launched) -> None:
    trial(laboratory, "before it dies")
    killed = launched[-1]
    os.kill(killed, signal.SIGKILL)
    trial(laboratory, "after it died")
    assert launched[-1] != killed


def test_deadlines_follow_the_baseline() -> None:
    deadlines = Deadlines(launch=1.0, factor=200.0)
    assert deadlines.of(1e3) == 1.0
    assert deadlines.of(1e8) == pytest.approx(20.0)
    assert deadlines.of(1e3, 4 << 30) == pytest.approx(16.0), "a mixed burst reads its files"
    assert deadlines.burst(20.0, None, 3, 0.0) == pytest.approx(60.0)


def test_a_hang_in_a_long_burst_costs_little_more_than_one_launch() -> None:
    deadlines = Deadlines(launch=1.0, factor=200.0, slower=10.0)
    assert deadlines.burst(1.0, None, 101, 2e3) == pytest.approx(1.002)
    assert deadlines.burst(1.0, None, 3, 1e9) == pytest.approx(3.0), "never more than one each"
    assert deadlines.burst(1.0, deadlines.other(1e4), 101, 0.0) == pytest.approx(1.2)


@pytest.mark.parametrize(
    "times",
    [(0.0,), (-1.0,), (float("nan"),), (float("inf"),), (1.0, 0.0), (), (1.0, 2.0, 3.0)],
)
def test_impossible_times_are_refused(times) -> None:
    with pytest.raises(DeviceFailure) as refused:
        refuse_implausible(times, 2, 1e9)
    assert refused.value.code == Code.IMPOSSIBLE_TIME


def test_a_mean_or_one_time_for_each_launch_is_accepted() -> None:
    refuse_implausible((5.0,), 2, 10.0)
    refuse_implausible((5.0, 6.0), 2, 11.0)


def test_a_device_cannot_have_been_busy_for_longer_than_the_host_waited() -> None:
    refuse_implausible((1e6,), 100, 1e8)
    with pytest.raises(DeviceFailure, match="host") as refused:
        refuse_implausible((1e6,), 100, 9e7)
    assert refused.value.code == Code.IMPOSSIBLE_TIME


def test_a_cold_time_that_the_memory_cannot_have_served_is_refused(laboratory) -> None:
    device = replace(laboratory.device, memory_bytes_per_second=1e9, l2_bytes=1 << 20)
    bounds = Bounds(device=device, least_bytes={0: 1 << 20}, launch_ns=900.0)
    rotation = Rotation(sets=100, warmup=0, bursts=5)
    honest = 1.06e6
    bounds.refuse(0, "cold", rotation, honest)
    bounds.refuse(0, "hot", rotation, honest / 2)
    bounds.refuse(1, "cold", rotation, 1000.0)
    with pytest.raises(DeviceFailure, match=r"cost\.bytes") as refused:
        bounds.refuse(0, "cold", rotation, honest / 2)
    assert refused.value.code == Code.IMPOSSIBLE_TIME
    with pytest.raises(DeviceFailure, match="empty launch") as refused:
        bounds.refuse(1, "hot", rotation, 400.0)
    assert refused.value.code == Code.IMPOSSIBLE_TIME


def test_a_device_that_reports_too_little_is_found_out_by_another_clock(
    laboratory, monkeypatch
) -> None:
    laboratory.outcome(f"{GOOD} /* a child for the next one */")
    real = {name: getattr(Supervisor, name) for name in ("load", "bind", "run_bursts")}
    modules, launchables = set(), set()

    def load(server, binaries):
        modules.add(module := real["load"](server, binaries))
        return module

    def bind(server, module, *others):
        launchable = real["bind"](server, module, *others)
        launchables.update([launchable] if module in modules else ())
        return launchable

    def run_bursts(server, shots, *more, **options):
        for shot, seen in zip(
            shots, real["run_bursts"](server, shots, *more, **options), strict=False
        ):
            times = tuple(ns / 160 for ns in seen.times)
            yield seen._replace(times=times) if shot.launchable in launchables else seen

    for changed in (load, bind, run_bursts):
        monkeypatch.setattr(Supervisor, changed.__name__, changed)
    slow = GOOD.replace(
        "if (i < n) out[i] = 2 * x[i]", "float sum = 0; if (i < n) LOOP out[i] = sum"
    )
    slow = slow.replace("LOOP", "{ for (int k = 0; k < 1600; k++) sum = sum * 0.5f + x[i]; }")
    slow = slow.replace("} out", "} if (i < n) out")
    outcome = laboratory.outcome(slow)
    assert isinstance(outcome, Rejected)
    assert outcome.code == Code.SLOWER_AGAIN
    assert "not as fast as the device reports" in outcome.detail


def test_hot_timing_stays_on_one_set(monkeypatch) -> None:
    hot = Path(AFFINE.parent.parent) / "bias" / "experiment.yaml"
    laboratory = Laboratory(hot)
    seen = recorded(monkeypatch)
    source = (hot.parent / "bias.cl").read_text() + "// again"
    assert isinstance(laboratory.outcome(source), Measured)
    laboratory.close()
    assert {each.order for each in seen} == {(0,)}


@pytest.mark.parametrize("sets", [1, 2, 16])
def test_a_kernel_meets_known_inputs_again_before_a_burst_on_them_counts(
    timing, monkeypatch, sets
) -> None:
    """A processor that met other inputs since has to learn which way branches go."""
    rotation = Rotation(sets=sets, warmup=1, bursts=1)
    monkeypatch.setattr(timing.session, "_order", lambda *_: (rotation, tuple(range(sets))))
    asked = recorded(monkeypatch)
    timing.session.time_burst(timing.baseline, timing.case, "cold")
    assert sum(len(burst.order) for burst in asked[:-1]) >= 3
    assert {burst.order for burst in asked} == {tuple(range(sets))}


def vitals(*throttled: str) -> Vitals:
    return Vitals(
        sm_mhz=1980, memory_mhz=2619, watts=300.0, celsius=50, throttled=throttled, others=0
    )


@pytest.mark.parametrize(("told", "takes"), [((), 1), (("power cap",), 2)])
def test_a_timing_under_throttling_is_taken_again(timing, monkeypatch, told, takes) -> None:
    answers = iter([vitals(*told), vitals(), vitals()])
    read = []
    run_bursts = timing.server.run_bursts

    def told_so(shots, *more, **options):
        for shot, seen in zip(shots, run_bursts(shots, *more, **options), strict=True):
            if shot.read_telemetry:
                read.append(next(answers))
            yield seen._replace(vitals=read[-1]) if shot.read_telemetry else seen

    monkeypatch.setattr(timing.server, "run_bursts", told_so)
    assert timing.samples(Measure(warmup=0, repeats=3))
    assert len(read) == takes
    assert not timing.session.notes


def test_timing_goes_on_until_the_median_is_sure_or_the_cap_is_reached(timing) -> None:
    assert len(timing.samples(Measure(warmup=0, repeats=16, until=1e-9, at_most=200))) >= 200


def test_a_timing_that_is_surely_too_slow_stops_after_it_was_checked(timing, monkeypatch) -> None:
    fired = recorded(monkeypatch)
    measure = Measure(warmup=16, repeats=160)
    for _ in range(4):
        fired.clear()
        assert timing.samples(measure, cutoff_ns=1.0)
        assert len(bursts(fired)) <= 3
        assert any(each.inspect is not None and each.inspect in each.order for each in fired)
    assert len(timing.samples(measure, cutoff_ns=1e12)) >= 160


def test_a_cell_above_its_cutoff_is_given_up_unless_the_configuration_leads(laboratory) -> None:
    slow, fast = 1e-6, 1e6

    def kinds(name: str, cutoffs: tuple[float, ...]) -> list[str]:
        outcome = laboratory.bench.run(laboratory.candidate(f"{GOOD} /* {name} */"), cutoffs)
        assert isinstance(outcome.outcome, Measured)
        return [cell.kind for cell in outcome.outcome.cells]

    assert kinds("neither", (slow, slow, slow)) == ["short", "short"]
    assert kinds("special", (slow, slow, fast)) == ["short", "full"]
    assert kinds("general", (fast, slow, slow)) == ["full", "full"]
    assert kinds("anything", (fast, fast, fast)) == ["full", "full"]


def test_what_is_given_up_was_checked_all_the_same(laboratory) -> None:
    wrong = laboratory.candidate(f"{GOOD.replace('2 *', '3 *')} /* wrong */")
    outcome = laboratory.bench.run(wrong, (1e-6, 1e-6, 1e-6)).outcome
    assert outcome.code == Code.WRONG_RESULT


@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_what_is_faster_than_an_empty_launch_is_refused(open_timing, cache) -> None:
    measure = Measure(warmup=0, repeats=3)
    assert open_timing(1.0).samples(measure, cache)
    with pytest.raises(DeviceFailure, match="an empty launch takes") as refused:
        open_timing(1e12).samples(measure, cache)
    assert refused.value.code == Code.IMPOSSIBLE_TIME
