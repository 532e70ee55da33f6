"""Substitution rules: how launches are recognised, and which variants serve them."""

from dataclasses import replace

import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.errors import SpecError
from tuner.experiment.contents import StructField
from tuner.experiment.fields import Source as File
from tuner.experiment.model import (
    Argument,
    CompilerFlag,
    Experiment,
    Kernel,
    Launch,
    Memset,
    ScratchArgument,
    ShapeBinding,
    Shapes,
    Template,
)
from tuner.export.bundle import Export
from tuner.export.substitution import Source, SymbolSource, substitution_rules
from tuner.expressions import Expression

parse = Expression.parse


def experiment(**changed):
    """Rows of ``d`` elements: ``d`` is in a struct, the rows in the grid."""
    given = {
        "kernel": Kernel(
            language="cuda",
            source=File(name="k.cu", text="//\n"),
            entry="k",
            launch=Launch(grid=(parse("2 * rows"),), block=(parse("min(d, 256)"),)),
        ),
        "arguments": (
            Argument(name="x", kind="inout", dtype="float16", shape=(parse("rows"), parse("d"))),
            Argument(
                name="p",
                kind="struct",
                fields=(
                    StructField(name="scale", dtype="float32", value=(0.5,)),
                    StructField(name="d", dtype="int64", value=(parse("d"),)),
                ),
            ),
            Argument(name="none", kind="null"),
        ),
        "shapes": Shapes(
            domain=(parse("d % 8 == 0"),),
            tune=(ShapeBinding({"rows": 4, "d": 64}), ShapeBinding({"rows": 4, "d": 256})),
        ),
        "template": Template(
            source=File(name="t.cu", text="//\n"),
            entry="t",
            parameters={"B": (32, 64)},
            constraints=(parse("d % B == 0"),),
            launch=Launch(grid=(parse("rows"),), block=(parse("B"),), shared_bytes=parse("4 * B")),
        ),
    }
    return Experiment(version=1, name="k", **(given | changed))


def rules(given, times=(50.0, 50.0)):
    history = finished_run(given, cuda_device(90), [100.0] * 2, [({"B": 64}, times)])
    return substitution_rules(Export.of(history))


def changed_template(**changed):
    given = experiment()
    return replace(given, template=replace(given.template, **changed))


def test_symbols_are_read_from_structs_and_from_multiples_in_the_grid():
    [rule], notes = rules(experiment())
    assert not notes
    assert rule.sizes == (8, 16, 8)
    assert rule.nulls == (2,)
    assert rule.symbols == (
        SymbolSource(source=Source(kind="grid", index=0), divisor=2),
        SymbolSource(source=Source(kind="parameter", index=1, at=8, size=8), divisor=1),
    )
    same = {(source.kind, source.index): program for source, program in rule.same}
    assert same["grid", 0] == "2 $0 *"
    assert same["block", 0] == "$1 256 min"
    assert (same["block", 1], same["shared", 0]) == ("1", "0")
    assert rule.domain == ("$1 8 % 0 ==",)
    [buffer] = rule.buffers
    assert (buffer.parameter, buffer.kind, buffer.bytes) == (0, "inout", "2 $0 * $1 *")
    [tuned] = rule.variants
    assert (tuned.grid, tuned.block, tuned.shared_bytes) == (
        ("$0", "1", "1"),
        ("64", "1", "1"),
        "256",
    )
    assert tuned.conditions == ("$1 64 % 0 ==",)


def test_the_dispatch_falls_back_to_the_original():
    [rule], _ = rules(experiment(), times=(150.0, 50.0))
    variants = [variant for variant, _ in rule.uses]
    assert variants[-1] is None
    assert sorted(rule.uses[:-1], key=lambda use: use[0] is None)[0][0] == 0
    assert "$1 128" in " ".join(program for _, program in rule.uses)


def test_a_variant_that_is_compiled_for_each_shape_serves_those_shapes_alone():
    given = changed_template(defines={"D": parse("d")})
    [rule], _ = rules(given)
    assert [dict(launch.build.defines)["D"] for launch in rule.variants] == [64, 256]
    assert "$1 64 ==" in rule.uses[0][1]
    assert "$1 256 ==" not in rule.uses[0][1]
    flags = changed_template(options=(CompilerFlag(flag="--maxrregcount", value=parse("B")),))
    assert "$1 64 ==" in rules(flags)[0][0].uses[0][1]


def test_each_type_has_a_rule_of_its_own():
    given = experiment()
    x = replace(given.arguments[0], dtype="T")
    shapes = (
        ShapeBinding({"rows": 4, "d": 64, "T": "float16"}),
        ShapeBinding({"rows": 4, "d": 64, "T": "float32"}),
    )
    found, _ = rules(
        replace(
            given,
            kernel=replace(given.kernel, entry="k<{T}>"),
            arguments=(x, *given.arguments[1:]),
            shapes=replace(given.shapes, tune=shapes),
        )
    )
    assert [rule.entry for rule in found] == ["k<__half>", "k<float>"]
    assert [rule.buffers[0].bytes for rule in found] == ["2 $0 * $1 *", "4 $0 * $1 *"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"scratch": (ScratchArgument(name="w", dtype="float32", shape=(parse(1),)),)}, "scratch"),
        ({"launch": None, "launches": (Memset(memset="x"),) * 2}, "it is launched in 2 steps"),
        (
            {"launch": Launch(grid=(parse(1),), block=(parse("B"),), cooperative=True)},
            "it is launched cooperatively",
        ),
    ],
)
def test_a_variant_that_cannot_be_substituted_is_named(changed, reason):
    [rule], notes = rules(changed_template(**changed))
    assert rule.variants == ()
    assert reason in notes[0]


def test_a_kernel_whose_launches_cannot_be_recognised_is_refused():
    given = experiment()
    lost = replace(given.kernel.launch, grid=(parse("ceil_div(rows, 4)"),))
    with pytest.raises(SpecError, match="the symbol rows cannot be read from a launch"):
        rules(replace(given, kernel=replace(given.kernel, launch=lost)))
    steps = (Memset(memset="x"), given.kernel.launch)
    with pytest.raises(SpecError, match="the baseline is launched in 2 steps"):
        rules(replace(given, kernel=replace(given.kernel, launch=None, launches=steps)))
    table = Argument(name="c", kind="constant", dtype="float32", shape=(parse(4),), symbol="c")
    with pytest.raises(SpecError, match="reads a __constant__ variable"):
        rules(replace(given, arguments=(*given.arguments, table)))
