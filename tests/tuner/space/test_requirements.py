"""The interpreters of a requirement agree: at one point, at many, and for a finished launch."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.space.devices import cuda_device
from tests.tuner.space.experiments import experiment, launch, parse, template
from tuner.experiment.model import CompilerFlag, ScratchArgument
from tuner.plan import KernelStep
from tuner.space.conditions import Condition
from tuner.space.limits import launch_excess
from tuner.space.lower import violation
from tuner.space.requirements import Requirement, requirements

DEVICE = cuda_device(90)
VALUES = {
    "A": (-(2**62), -3, 0, 1, 7, 64, 2**40),
    "B": (0, 1, 3, 1024, 2**31),
    "M": ("x", "y"),
}
EXPRESSIONS = st.sampled_from(
    [
        "A",
        "A * B",
        "A // B",
        "A if M == 'x' else B",
        "M",
        "M == 'y' or A > B",
        "log2(A)",
        "2 ** B",
        "n - A",
        "device.warp_size * B",
    ]
).map(parse)
BOUND = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([1024, 2**31 - 1, 2**63 - 1]))
REQUIREMENTS = st.builds(
    Requirement,
    label=st.just("label"),
    subject=st.just("subject"),
    factors=st.one_of(
        st.tuples(EXPRESSIONS),
        st.tuples(EXPRESSIONS, EXPRESSIONS),
        st.tuples(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS),
    ),
    true=st.booleans(),
    least=st.integers(0, 3),
    most=st.one_of(st.none(), st.integers(0, 5), st.sampled_from([1024, 2**63 - 1])),
    item=st.sampled_from([None, "int16", "T"]),
    when=st.one_of(st.none(), EXPRESSIONS),
)
LOOSE = st.builds(
    Requirement,
    label=st.just("label"),
    subject=st.just("subject"),
    factors=st.tuples(EXPRESSIONS),
    true=st.booleans(),
    least=BOUND,
    when=st.one_of(st.none(), EXPRESSIONS),
)


def agree(requirement, symbols, device=DEVICE):
    """Compare point by point; returns how many of them meet it."""
    points = [
        dict(zip(VALUES, point, strict=True)) for point in itertools.product(*VALUES.values())
    ]
    columns = {name: np.array([point[name] for point in points]) for name in VALUES}
    condition = Condition(requirement, device)
    held = condition.test({**symbols, **columns}, len(points))[0].tolist()
    reasons = [violation(requirement, {**symbols, **point}, device) for point in points]
    assert held == [reason is None for reason in reasons]
    assert all(reason.startswith(f"{requirement.subject}: ") for reason in reasons if reason)
    return sum(held)


@settings(max_examples=300, deadline=None)
@given(st.one_of(REQUIREMENTS, LOOSE), st.integers(-3, 200))
def test_one_point_and_many_points_agree(requirement, n):
    agree(requirement, {"n": n, "T": "float32"})


def everything():
    return template(
        VALUES,
        ["A > B", "M == 'x' or n % 2"],
        steps=[
            launch(grid=("A", "B"), block=("B", "n", "4"), shared_bytes="A * B", entry="first"),
            launch(grid=("n // A",), block=("B",)),
        ],
        defines={"D": "log2(A)"},
        options=("-x", CompilerFlag(flag="-r", value=parse("16 // B"), when=parse("A > 0"))),
        scratch=(ScratchArgument(name="s", dtype="T", shape=(parse("A"), parse("n * B"))),),
    )


def test_every_requirement_of_a_template_is_stated_in_order():
    problem = experiment({"n": 8, "T": "float32"}, domain=["n > 4"])
    required = list(requirements(problem, everything(), DEVICE))
    assert [requirement.label for requirement in required] == [
        "the domain, n > 4",
        "the constraint A > B",
        "the constraint M == 'x' or n % 2",
        "first: 0 to 232448 bytes of dynamic shared memory",
        "first: 1 to 2147483647 blocks along x",
        "first: 1 to 1024 threads along x",
        "first: 1 to 65535 blocks along y",
        "first: 1 to 1024 threads along y",
        "first: 1 to 64 threads along z",
        "first: 1 to 1024 threads per block",
        "0 to 232448 bytes of dynamic shared memory",
        "1 to 2147483647 blocks along x",
        "1 to 1024 threads along x",
        "1 to 1024 threads per block",
        "a value for define D",
        "a value for option -r",
        "a value for option -r",
        "a size for scratch s",
    ]
    for requirement in required:
        agree(requirement, {"n": 9, "T": "float32"})


def test_the_baseline_answers_for_its_launches_and_the_domain_alone():
    problem = experiment(domain=["n > 4"])
    labels = [one.label for one in requirements(problem, problem.kernel, DEVICE)]
    assert labels[0] == "the domain, n > 4"
    assert len(labels) == 5


@pytest.mark.parametrize("block", [(1, 1, 1), (1024, 1, 1), (1025, 1, 1), (32, 33, 1), (1, 1, 65)])
@pytest.mark.parametrize("grid", [(1, 1, 1), (2**31, 1, 1), (1, 65536, 1)])
@pytest.mark.parametrize("shared_bytes", [0, 232448, 232449])
def test_a_finished_launch_is_judged_as_its_expressions_are(block, grid, shared_bytes):
    family = template({}, steps=[launch(grid=grid, block=block, shared_bytes=shared_bytes)])
    reasons = [
        violation(one, {"n": 256}, DEVICE) for one in requirements(experiment(), family, DEVICE)
    ]
    step = KernelStep(
        entry="k", grid=grid, block=block, shared_bytes=shared_bytes, arguments=("x",)
    )
    excess = launch_excess(step, DEVICE)
    first = next(filter(None, reasons), None)
    assert (excess is None) == (first is None)
    if excess is not None:
        unit = first.split(" on ")[0]
        assert unit in excess[1]
