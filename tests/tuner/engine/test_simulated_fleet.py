"""The simulated fleet: a fleet like the others, and the same whenever it is asked."""

import asyncio
from dataclasses import replace

from tests.conformance.fleet import UNCOMPILABLE, FleetConformance
from tests.tuner.engine.driving import Run, experiment, fleet
from tests.tuner.engine.simulated_fleet import Durations, Fault, SimulatedFleet
from tests.tuner.space import experiments
from tests.tuner.space.devices import opencl_cpu
from tuner.engine.fleet import Fleet
from tuner.experiment.model import Experiment, ShapeBinding, Shapes
from tuner.trial import Configuration


def small() -> Experiment:
    base = experiments.experiment()
    tune = (ShapeBinding({"n": 256}), ShapeBinding({"n": 512}))
    return replace(
        base,
        shapes=Shapes(tune=tune, held_out=(ShapeBinding({"n": 99}),)),
        template=experiments.template(
            {"B": (32, 64, 128)}, steps=(experiments.launch(block=("B",)),)
        ),
    )


class TestSimulatedFleet(FleetConformance):
    experiment = small()
    configurations = tuple(Configuration.of({"B": block}) for block in (32, 64, 128))

    @classmethod
    async def open_fleet(cls) -> Fleet:
        return SimulatedFleet(
            device=opencl_cpu(),
            baseline_ns=(100.0, 200.0, 300.0),
            cost=lambda configuration, shape: 50.0 * (1 + shape),
            faults={UNCOMPILABLE: Fault.COMPILE_ERROR},
        )


def test_a_time_depends_on_seed_and_trial_and_not_on_the_fleet():
    def first_outcome(**options):
        run = Run(experiment())
        return run.drive(fleet(**options)).history.trials[0].outcome

    assert first_outcome() == first_outcome(bench_slots=3, compile_slots=2)
    assert first_outcome() != first_outcome(seed=1)


def test_the_clock_is_virtual_and_slots_work_side_by_side():
    def wall(slots: int) -> float:
        run = Run(experiment(trials=40))
        simulated = fleet(
            bench_slots=slots, compile_slots=8, durations=Durations(compile=0.0, bench=10.0)
        )
        run.drive(simulated)
        return simulated.now()

    assert wall(1) > 400
    assert wall(4) < wall(1) / 2


def test_nothing_pending_passes_the_time():
    async def body() -> None:
        simulated = fleet()
        assert await simulated.answers(timeout=3.0) == ()
        assert simulated.now() == 3.0

    asyncio.run(body())
