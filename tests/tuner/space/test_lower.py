"""Lowering: what reaches the compiler and the bench, and what makes a shape infeasible."""

import pytest

from tests.tuner.space.devices import cuda_device, opencl_cpu
from tests.tuner.space.experiments import experiment, launch, parse, template
from tuner.errors import SpecError
from tuner.experiment.model import CompilerFlag, Memset, ScratchArgument
from tuner.plan import CellPlan, KernelStep, MemsetStep, Scratch
from tuner.space.lower import lower
from tuner.trial import Configuration, Infeasible

DEVICE = opencl_cpu()


def lowered(given, family, values, device=DEVICE):
    return lower(given, family, Configuration.of(values), given.shapes.tune, device)


def test_the_baseline_is_its_own_source_with_no_defines():
    given = experiment({"n": 256}, {"n": 1000}, options=["-cl-fast-relaxed-math"])
    plan = lowered(given, None, {})
    (build,) = plan.builds
    assert (build.source, build.defines, build.entries) == ("// baseline", (), ("scale",))
    assert build.options == ("-cl-fast-relaxed-math",)
    assert [cell.steps[0].grid for cell in plan.cells] == [(4, 1, 1), (16, 1, 1)]
    assert plan.cells[0].steps[0].arguments == ("x", "n")


def test_parameters_reach_the_compiler_as_integers():
    family = template(
        {"VEC": (1, 2, 4), "FAST": (False, True), "MODE": ("plain", "cached")},
        steps=[launch(block=("64 * VEC",))],
    )
    plan = lowered(experiment(), family, {"FAST": True, "VEC": 2, "MODE": "cached"})
    assert plan.builds[0].defines == (
        ("VEC", 2),
        ("FAST", 1),
        ("MODE", 1),
        ("MODE_plain", 0),
        ("MODE_cached", 1),
    )
    assert plan.cells[0].steps[0].block == (128, 1, 1)


def test_builds_are_shared_unless_a_derived_define_differs():
    shapes = ({"n": 256}, {"n": 1000}, {"n": 512})
    family = template({"VEC": (4,)}, defines={"FULL": "n % 256 == 0"})
    plan = lowered(experiment(*shapes), family, {"VEC": 4})
    assert [dict(build.defines)["FULL"] for build in plan.builds] == [1, 0]
    assert [cell.build for cell in plan.cells] == [0, 1, 0]


def test_options_are_inherited_or_replaced():
    given = experiment(options=["-DX"])
    inherits = template({"REGS": (32, 64), "FAST": (False, True)})
    assert lowered(given, inherits, {"REGS": 32, "FAST": True}).builds[0].options == ("-DX",)
    own = template(
        {"REGS": (32, 64), "FAST": (False, True)},
        options=(
            "-a",
            CompilerFlag(flag="--maxrregcount", value=parse("REGS")),
            CompilerFlag(flag="--use_fast_math", when=parse("FAST")),
        ),
    )
    fast = lowered(given, own, {"REGS": 32, "FAST": True}).builds[0].options
    assert fast == ("-a", "--maxrregcount=32", "--use_fast_math")
    slow = lowered(given, own, {"REGS": 64, "FAST": False}).builds[0].options
    assert slow == ("-a", "--maxrregcount=64")


def test_sequences_of_launches_with_scratch():
    family = template(
        {"PARTS": (2, 8)},
        steps=[
            Memset(memset="partial", byte=0),
            launch(grid=("PARTS",), entry="first"),
            launch(grid=(1,), shared_bytes="PARTS * 4", entry="second", arguments=("partial", "x")),
        ],
        scratch=(ScratchArgument(name="partial", dtype="float16", shape=(parse("PARTS"),)),),
    )
    plan = lowered(experiment(), family, {"PARTS": 8})
    memset, first, second = plan.cells[0].steps
    assert memset == MemsetStep(argument="partial", byte=0)
    assert isinstance(first, KernelStep)
    assert first.arguments == ("x", "n", "partial")
    assert (second.arguments, second.shared_bytes) == (("partial", "x"), 32)
    assert plan.builds[0].entries == ("first", "second")
    assert plan.cells[0].scratch == (Scratch(name="partial", dtype="float16", elements=8, align=2),)


def test_entries_are_name_expressions_over_parameters_and_types():
    given = experiment({"n": 256, "T": "float16"}, {"n": 256, "T": "float32"}, language="cuda")
    family = template({"VEC": (8,), "MODE": ("a", "b")}, entry="ns::scale<{T}, {VEC}, {MODE}>")
    plan = lowered(given, family, {"VEC": 8, "MODE": "b"}, cuda_device(90))
    names = [build.entries[0] for build in plan.builds]
    assert names[1] == "ns::scale<float, 8, 1>"
    assert names[0] != names[1]
    assert plan.cells[1].steps[0].entry == names[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"constraints": ["VEC <= 2"]}, "a constraint does not hold: VEC <= 2"),
        ({"constraints": ["n // (VEC - 4) > 0"]}, "division by zero"),
        ({"steps": [launch(grid=("n // 4096",))]}, "below 1"),
        ({"steps": [launch(shared_bytes="VEC - 8")]}, "below 0"),
        (
            {"steps": [launch(block=("4096 * VEC",))]},
            "threads along x on test cpu: 4096 * VEC is 16384, above",
        ),
        ({"steps": [launch(block=("'a'",))]}, "not an integer"),
        ({"steps": [launch(grid=("6",), cluster=("VEC",))]}, "no multiple of the cluster along x"),
        ({"defines": {"D": "log2(VEC - 4)"}}, "log2"),
        ({"options": (CompilerFlag(flag="-o", value=parse("1 // (VEC - 4)")),)}, "option -o"),
        (
            {"scratch": (ScratchArgument(name="s", dtype="int8", shape=(parse("VEC - 4"),)),)},
            "scratch s",
        ),
        (
            {"scratch": (ScratchArgument(name="s", dtype="int16", shape=(parse("2**62"),)),)},
            "bytes of scratch s: 2**62 is 9223372036854775808, above",
        ),
    ],
)
def test_an_infeasible_shape_says_why(change, reason):
    plan = lowered(experiment(), template({"VEC": (4,)}, **change), {"VEC": 4})
    assert plan.builds == ()
    (cell,) = plan.cells
    assert isinstance(cell, Infeasible)
    assert reason in cell.reason


def test_attributes_of_a_launch_depend_on_parameters():
    steps = [launch(grid=("8",), cluster=("VEC",), dependent="VEC == 2")]
    family = template({"VEC": (1, 2, 16)}, steps=steps)
    seen = []
    for vec in (1, 2):
        (cell,) = lowered(experiment(), family, {"VEC": vec}, cuda_device(90)).cells
        assert isinstance(cell, CellPlan)
        (step,) = cell.steps
        seen.append((step.cluster, step.dependent, cell.dependent_steps))
        assert cell.serialised.dependent_steps == ()
    assert seen == [((1, 1, 1), False, ()), ((2, 1, 1), True, (0,))]
    for vec, device, words in (
        (16, cuda_device(90), "blocks per cluster on test sm_90: VEC is 16, above 8"),
        (2, cuda_device(80), "blocks per cluster on test sm_80: VEC is 2, above 1"),
    ):
        (cell,) = lowered(experiment(), family, {"VEC": vec}, device).cells
        assert isinstance(cell, Infeasible)
        assert words in cell.reason


def test_only_the_shape_concerned_is_infeasible():
    given = experiment({"n": 3}, {"n": 256}, domain=["n % 2 == 0"])
    plan = lowered(given, None, {})
    assert isinstance(plan.cells[0], Infeasible)
    assert "outside the domain" in plan.cells[0].reason
    assert plan.cells[1].build == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no value for parameter VEC"),
        ({"VEC": 3}, "VEC=3 is not among the template's values: 1, 2"),
        ({"VEC": True}, "not among"),
        ({"VEC": 1, "BLOK": 3}, "BLOK is not a parameter"),
    ],
)
def test_a_configuration_of_another_template_is_an_error(values, words):
    with pytest.raises(SpecError, match=words):
        lowered(experiment(), template({"VEC": (1, 2)}), values)
