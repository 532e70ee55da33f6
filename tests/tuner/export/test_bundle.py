"""The export: a header that compiles cleanly, agrees with the lowering, and picks right."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.candidate import BASELINE, INCUMBENT
from tuner.errors import NothingValid
from tuner.experiment.fields import Source
from tuner.experiment.load import load_experiment
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
from tuner.export.bundle import export_files
from tuner.export.record import NAME, read_record
from tuner.expressions import Expression
from tuner.journal.facts import IncumbentEntered
from tuner.plan import MemsetStep
from tuner.results.summary import summarise
from tuner.space.lower import lower
from tuner.trial import Configuration, Infeasible

parse = Expression.parse
BUNDLED = sorted(Path("deploy/experiments").glob("*/*.yaml"))
BUNDLED = [path for path in BUNDLED if "\ntemplate:" in path.read_text()]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def everything() -> Experiment:
    """An experiment that uses each thing a header must carry."""
    return Experiment(
        version=1,
        name="2-in-1",
        kernel=Kernel(
            language="cuda",
            source=Source(name="both.cu", text="// the kernel as it was\n"),
            entry="ns::both<{T}>",
            headers=(("both.cuh", "#pragma once\n"),),
            options=("--use_fast_math",),
            launch=Launch(grid=(parse("n"), parse(2)), block=(parse("min(d, 1024)"),)),
        ),
        arguments=(
            Argument(name="out", kind="out", dtype="T", shape=(parse("n * d"),), align=16),
            Argument(name="x", kind="in", dtype="T", shape=(parse("n * d"),), align=8),
            Argument(name="n", kind="scalar", dtype="int32", value=parse("n")),
            Argument(name="eps", kind="scalar", dtype="float32", value=1e-6, fixed=True),
            Argument(name="heads", kind="scalar", dtype="int32", value=parse(8)),
            Argument(name="scale", kind="scalar", dtype="float32", value=0.5),
        ),
        shapes=Shapes(
            domain=tuple(map(parse, ("d % 8 == 0", "n <= 4096", "T == 'float32' or d >= 64"))),
            tune=(
                ShapeBinding({"n": 16, "d": 64, "T": "float16"}),
                ShapeBinding({"n": 64, "d": 256, "T": "float16"}),
                ShapeBinding({"n": 16, "d": 64, "T": "float32"}),
            ),
            held_out=(ShapeBinding({"n": 100, "d": 128, "T": "float32"}),),
        ),
        template=Template(
            source=Source(name="family.cu", text="// the family\n"),
            entry="ns::both<{T}, {VEC}, {d}>",
            parameters={
                "VEC": (1, 2, 4, 8),
                "MODE": ("plain", "wide"),
                "FAST": (False, True),
                "BLOCK": (64, 128, 2048),
            },
            constraints=tuple(map(parse, ("d % VEC == 0", "MODE == 'plain' or T == 'float16'"))),
            defines={
                "D": parse("d"),
                "FULL": parse("d % (VEC * BLOCK) == 0"),
                "WARPS": parse("BLOCK // device.warp_size"),
            },
            options=(
                "--std=c++17",
                CompilerFlag(flag="--use_fast_math", when=parse("FAST")),
                CompilerFlag(flag="--maxrregcount", value=parse("32 * VEC")),
            ),
            launches=(
                Memset(memset="partial", byte=255),
                Launch(
                    grid=(parse("ceil_div(n * d, VEC * BLOCK)"),),
                    block=(parse("BLOCK"),),
                    shared_bytes=parse("4 * BLOCK if MODE == 'wide' else 0"),
                ),
                Launch(
                    grid=(parse("n"), parse("d // 8 - 7")),
                    block=(parse(32), parse("VEC")),
                    entry="ns::finish<{T}>",
                    arguments=("partial", "out"),
                ),
            ),
            scratch=(ScratchArgument(name="partial", dtype="T", shape=(parse("n"), parse("VEC"))),),
        ),
    )


def undefined_somewhere() -> Experiment:
    """The same, but that expressions are undefined on some shapes, where C gives a number."""
    found = everything()
    domain = (*found.shapes.domain, parse("n * d * 2 ** 38 < 2 ** 60"))
    return replace(
        found,
        shapes=replace(found.shapes, domain=domain),
        template=replace(
            found.template,
            constraints=(*found.template.constraints, parse("64 // (n - 15) >= 0")),
            defines={**found.template.defines, "PARTS": parse("64 % (n - 72)")},
        ),
    )


def corners(experiment: Experiment) -> list[Configuration]:
    """A few configurations: each parameter at its first and last value, all others at the first."""
    parameters = experiment.template.parameters
    first = {name: values[0] for name, values in parameters.items()}
    last = {name: values[-1] for name, values in parameters.items()}
    mixed = [first | {name: values[-1]} for name, values in parameters.items()]
    return [Configuration.of(values) for values in (first, last, *mixed)]


def run_of(experiment, device, general, special, *, special_shape=1, slow=()):
    """``general`` twice as fast as the baseline, ``special`` four times on one shape alone."""
    count = len(experiment.shapes.tune) + len(experiment.shapes.held_out)
    baseline = [1000.0 * (1 + shape) for shape in range(count)]
    even = [t * (2.0 if shape in slow else 0.5) for shape, t in enumerate(baseline)]
    spiky = [t * (0.25 if shape == special_shape else 3.0) for shape, t in enumerate(baseline)]
    return finished_run(
        experiment,
        device,
        baseline,
        [(general.as_dict(), even), (special.as_dict(), spiky)],
    )


def execute(files: dict[str, str], folder: Path, body: str) -> list[str]:
    """Compile a program around the header, as strictly as can be, and return what it prints."""
    for name, text in files.items():
        (folder / name).write_text(text)
    header = next(name for name in files if name.endswith(".h") and "select(" in files[name])
    program = (
        f'#include "{header}"\n#include "{header}"\nint main(void)\n{{\n{body}\nreturn 0;\n}}\n'
    )
    (folder / "main.c").write_text(program)
    command = [
        "gcc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "main.c",
        "-o",
        "main",
    ]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([folder / "main"], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def shape_literal(prefix: str, binding: ShapeBinding) -> str:
    fields = (
        f".{name} = {f'{prefix.upper()}_{name}_{value}' if isinstance(value, str) else value}"
        for name, value in binding.symbols.items()
    )
    return f"({prefix}_shape){{{', '.join(fields)}}}"


def described(prefix: str, variant: str, bindings: list[ShapeBinding]) -> str:
    """C that prints, for each shape, all that the header says of a variant there."""
    shapes = ",\n".join(shape_literal(prefix, binding) for binding in bindings)
    return f"""
    const {prefix}_shape shapes[] = {{{shapes}}};
    size_t at;
    for (at = 0; at < sizeof shapes / sizeof *shapes; ++at) {{
        const {prefix}_shape *s = shapes + at;
        {prefix}_step t;
        char options[1024];
        int i, v = {variant};
        {prefix}_options(v, s, options, sizeof options);
        printf("%d|%d|%s", {prefix}_in_domain(s), {prefix}_feasible(v, s), options);
        for (i = 0; i < {prefix}_steps(v) && {prefix}_feasible(v, s); ++i) {{
            {prefix}_step_of(v, i, s, &t);
            if (t.memset)
                printf("|memset %s %d", t.arguments, t.byte);
            else
                printf("|%s(%s) %lld %lld %lld %lld %lld %lld %lld", t.entry, t.arguments,
                    t.grid[0], t.grid[1], t.grid[2], t.block[0], t.block[1], t.block[2],
                    t.shared_bytes);
        }}
        for (i = 0; i < {prefix}_scratches(v); ++i)
            printf("|%lld bytes", {prefix}_scratch_bytes(v, i, s));
        printf("\\n");
    }}"""


def expected_steps(cell) -> list[str]:
    said = []
    for step in cell.steps:
        if isinstance(step, MemsetStep):
            said.append(f"memset {step.argument} {step.byte}")
        else:
            sizes = " ".join(map(str, (*step.grid, *step.block, step.shared_bytes)))
            said.append(f"{step.entry}({', '.join(step.arguments)}) {sizes}")
    return said


def shapes_around(experiment: Experiment) -> list[ShapeBinding]:
    """The spec's shapes and neighbours of them, some outside the domain."""
    found = []
    for binding in (*experiment.shapes.tune, *experiment.shapes.held_out):
        found.append(binding)
        for name, value in binding.symbols.items():
            if isinstance(value, int):
                for other in (1, value - 1, value + 8, 3 * value, 1 << 20):
                    found.append(ShapeBinding({**binding.symbols, name: other}))
    return found


@needs_gcc
def test_an_incumbent_that_serves_a_shape_is_exported_from_its_own_template(tmp_path):
    experiment, device = everything(), cuda_device(90)
    before = replace(
        experiment.template,
        source=Source(name="before.cu", text="// the family before\n"),
        parameters={"VEC": (2,), "OLD": (5,), "BLOCK": (64,), "MODE": ("plain",), "FAST": (True,)},
    )
    chosen = Configuration.of({"VEC": 2, "OLD": 5, "BLOCK": 64, "MODE": "plain", "FAST": True})
    baseline = [1000.0] * 4
    history = finished_run(
        experiment,
        device,
        baseline,
        [(corners(experiment)[0].as_dict(), [500.0] * 4)],
        incumbents=[
            (
                IncumbentEntered(template=before, configuration=chosen),
                [2000.0, 250.0, 2000.0, 2000.0],
            )
        ],
    )
    files = export_files(history)
    assert "#define OLD 5\n" in files["k_2_in_1_incumbent.cu"]
    assert "// the family before" in files["k_2_in_1_incumbent.cu"]
    record = read_record(files[NAME])
    assert [v.trial for v in record.variants] == [BASELINE, 0, INCUMBENT]
    assert [claim.shape for claim in record.variants[2].claims] == [1, 3]
    body = (
        f'printf("%d", k_2_in_1_select(&{shape_literal("k_2_in_1", experiment.shapes.tune[1])}));'
    )
    assert execute(files, tmp_path, body + ' printf("\\n%d\\n", K_2_IN_1_INCUMBENT);') == ["2", "2"]


@needs_gcc
@pytest.mark.parametrize(
    "make",
    [
        everything,
        undefined_somewhere,
        *[(lambda path=path: load_experiment(path)) for path in BUNDLED],
    ],
    ids=["everything", "undefined", *[f"{path.parent.name}/{path.stem}" for path in BUNDLED]],
)
def test_the_header_says_what_the_lowering_says(make, tmp_path):
    experiment = make()
    device = cuda_device(90) if experiment.kernel.language == "cuda" else opencl_cpu()
    shapes = shapes_around(experiment)
    for number, configuration in enumerate(corners(experiment)[:2]):
        files = export_files(run_of(experiment, device, configuration, configuration))
        prefix = next(name for name in files if name.endswith(".h") and "select(" in files[name])
        prefix = prefix.removesuffix(".h")
        folder = tmp_path / str(number)
        folder.mkdir()
        body = described(prefix, f"{prefix.upper()}_GENERAL", shapes)
        printed = execute(files, folder, body)
        plan = lower(experiment, experiment.template, configuration, shapes, device)
        source = next(text for name, text in files.items() if "_general." in name)
        baked = dict(re.findall(r"^#define (\w+) (-?\d+)$", source, re.MULTILINE))
        for binding, cell, line in zip(shapes, plan.cells, printed, strict=True):
            in_domain, feasible, options, *steps = line.split("|")
            assert (feasible == "0") == isinstance(cell, Infeasible), (str(binding), cell, line)
            if isinstance(cell, Infeasible):
                assert in_domain == "0" or "outside the domain" not in cell.reason
                continue
            build = plan.builds[cell.build]
            given = re.findall(r"-D(\w+)=(-?\d+)", options)
            assert {**baked, **dict(given)} == {n: str(v) for n, v in build.defines}
            plain = [option for option in options.split() if not option.startswith("-D")]
            assert plain == list(build.options)
            scratch = [step for step in steps if step.endswith(" bytes")]
            assert [step for step in steps if step not in scratch] == expected_steps(cell)
            assert len(scratch) == len(cell.scratch)


@needs_gcc
def test_dispatch_picks_the_specialised_the_general_or_the_baseline(tmp_path):
    experiment = everything()
    general = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    special = Configuration.of({"VEC": 8, "MODE": "wide", "FAST": False, "BLOCK": 128})
    files = export_files(run_of(experiment, cuda_device(90), general, special))
    assert set(files) == {
        "k_2_in_1.h",
        "example.c",
        "k_2_in_1_baseline.cu",
        "k_2_in_1_general.cu",
        "k_2_in_1_trial1.cu",
        "both.cuh",
        "export.json",
        "record.json",
    }
    asked = [
        ({"n": 16, "d": 64, "T": "float16"}, "GENERAL"),
        ({"n": 64, "d": 256, "T": "float16"}, "TRIAL1"),
        ({"n": 64, "d": 256, "T": "float32"}, "GENERAL"),
        ({"n": 100, "d": 128, "T": "float32"}, "GENERAL"),
        ({"n": 100, "d": 32, "T": "float32"}, "BASELINE"),
        ({"n": 100, "d": 127, "T": "float32"}, "BASELINE"),
        ({"n": 5000, "d": 128, "T": "float32"}, "BASELINE"),
        ({"n": 0, "d": 128, "T": "float32"}, "BASELINE"),
        ({"n": -3, "d": 128, "T": "float16"}, "BASELINE"),
    ]
    names = ", ".join(f"K_2_IN_1_{variant}" for _, variant in asked)
    bindings = [ShapeBinding(symbols) for symbols, _ in asked]
    shapes = ", ".join(shape_literal("k_2_in_1", binding) for binding in bindings)
    body = f"""
    k_2_in_1_shape s[] = {{{shapes}}};
    int wanted[] = {{{names}}}, i;
    for (i = 0; i < {len(asked)}; ++i)
        printf("%d\\n", k_2_in_1_select(&s[i]) == wanted[i]);
    printf("%s\\n", k_2_in_1_file(K_2_IN_1_TRIAL1));
    printf("%d", k_2_in_1_aligned((void *)16, (void *)8));
    printf("%d\\n", k_2_in_1_aligned((void *)8, (void *)8));
    printf("%d%d%d\\n", k_2_in_1_fixed(1e-6f, 8), k_2_in_1_fixed(1e-5, 8), k_2_in_1_fixed(1e-6, 4));
    {{
        char text[8];
        printf("%d\\n", k_2_in_1_options(K_2_IN_1_GENERAL, s, text, sizeof text)
            == k_2_in_1_options(K_2_IN_1_GENERAL, s, NULL, 0));
    }}
    """
    printed = execute(files, tmp_path, body)
    assert printed == ["1"] * len(asked) + ["k_2_in_1_trial1.cu", "10", "100", "1"]


def test_sources_carry_their_values_and_say_what_depends_on_the_shape():
    experiment = everything()
    general = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    special = Configuration.of({"VEC": 8, "MODE": "wide", "FAST": False, "BLOCK": 128})
    files = export_files(run_of(experiment, cuda_device(90), general, special))
    text = files["k_2_in_1_general.cu"]
    assert "#define VEC 4\n#define MODE 0\n#define MODE_plain 0\n#define MODE_wide 1\n" in text
    assert "#define WARPS 2\n" in text
    assert "#define D " not in text
    assert "D, FULL: depend on the shape" in text
    assert text.endswith('#line 1 "family.cu"\n// the family\n')
    text = files["k_2_in_1_trial1.cu"]
    assert "#define VEC 8\n#define MODE 1\n" in text
    assert files["k_2_in_1_baseline.cu"] == "// the kernel as it was\n"
    manifest = json.loads(files["export.json"])
    assert [shape["variant"] for shape in manifest["shapes"]] == [
        "general",
        "trial1",
        "general",
        "general",  # the rule says trial1, which is infeasible there
    ]
    assert manifest["rule"] == [
        {"when": [{"symbol": "n", "relation": "<=", "value": 32}], "variant": "general"},
        {"when": [{"symbol": "n", "relation": ">", "value": 32}], "variant": "trial1"},
    ]
    assert manifest["otherwise"] == "general"


def test_where_the_general_one_is_slower_the_baseline_serves():
    experiment = everything()
    one = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    history = run_of(experiment, cuda_device(90), one, one, special_shape=0, slow=(2,))
    manifest = json.loads(export_files(history)["export.json"])
    assert manifest["shapes"][2]["variant"] == "baseline"


def test_no_gain_exports_a_header_that_stays_with_the_baseline():
    experiment = everything()
    one = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    history = finished_run(experiment, cuda_device(90), [100.0] * 4, [(one.as_dict(), [100.0] * 4)])
    files = export_files(history)
    assert "    return K_2_IN_1_BASELINE;\n}" in files["k_2_in_1.h"]
    manifest = json.loads(files["export.json"])
    assert {shape["variant"] for shape in manifest["shapes"]} == {"baseline"}
    assert manifest["rule"] == [{"when": [], "variant": "baseline"}]
    assert manifest["otherwise"] == "baseline"


@needs_gcc
def test_one_variant_that_serves_every_shape_is_picked_plainly(tmp_path):
    experiment = load_experiment("deploy/experiments/silu_and_mul/opencl.yaml")
    one = corners(experiment)[0].as_dict()
    times = [1000.0] * len((*experiment.shapes.tune, *experiment.shapes.held_out))
    history = finished_run(experiment, opencl_cpu(), times, [(one, [500.0 for _ in times])])
    files = export_files(history)
    header = files["silu_and_mul.h"]
    select = header[header.index("silu_and_mul_select(const") :]
    assert select[select.index("{") : select.index("}") + 1] == (
        "{\n    return silu_and_mul_feasible(SILU_AND_MUL_GENERAL, s) ? "
        "SILU_AND_MUL_GENERAL : SILU_AND_MUL_BASELINE;\n}"
    )
    assert header.count("switch") == 1
    body = """
    silu_and_mul_shape inside = {32, 4096}, outside = {32, 1 << 20};
    printf("%d\\n", silu_and_mul_select(&inside) == SILU_AND_MUL_GENERAL);
    printf("%d\\n", silu_and_mul_select(&outside) == SILU_AND_MUL_BASELINE);
    printf("%d\\n", silu_and_mul_steps(SILU_AND_MUL_GENERAL));
    """
    assert execute(files, tmp_path, body) == ["1", "1", "1"]


def test_nothing_confirmed_is_nothing_to_export():
    experiment = everything()
    one = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    history = finished_run(
        experiment, cuda_device(90), [100.0] * 4, [(one.as_dict(), [50.0] * 4)], processes=0
    )
    with pytest.raises(NothingValid, match="nothing to export"):
        export_files(history)


def test_a_hostile_name_cannot_leave_its_comment():
    experiment = replace(everything(), name="x")
    device = replace(cuda_device(90), name='*/ #error "out" /*')
    one = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    header = export_files(run_of(experiment, device, one, one))["x.h"]
    comment = header[: header.index("#ifndef")]
    assert comment.count("*/") == 1


@needs_gcc
@pytest.mark.parametrize("seed", range(3))
def test_c_and_python_dispatch_alike_on_every_shape(seed, tmp_path):
    """Random times, so random portfolios: the header picks what the result says serves a shape."""
    experiment, device = everything(), cuda_device(90)
    random = np.random.default_rng(seed)
    configurations = corners(experiment)
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    trials = []
    for configuration in configurations:
        plan = lower(experiment, experiment.template, configuration, shapes, device)
        times = [
            None if isinstance(cell, Infeasible) else float(random.uniform(300, 1500))
            for cell in plan.cells
        ]
        trials.append((configuration.as_dict(), times))
    history = finished_run(experiment, device, [1000.0] * len(shapes), trials)
    portfolio = summarise(history).portfolio
    files = export_files(history)
    literals = ", ".join(shape_literal("k_2_in_1", binding) for binding in shapes)
    body = f"""
    k_2_in_1_shape s[] = {{{literals}}};
    int i;
    for (i = 0; i < {len(shapes)}; ++i)
        printf("%s\\n", k_2_in_1_file(k_2_in_1_select(&s[i])));
    """
    names = {v["file"]: v["configuration"] for v in json.loads(files["export.json"])["variants"]}
    picked = [names[line] for line in execute(files, tmp_path, body)]
    serving = [{} if t == BASELINE else trials[t][0] for t in portfolio.serves]
    assert picked == serving
    assert len(portfolio.members) > 1


@needs_gcc
def test_without_a_domain_only_confirmed_shapes_are_served(tmp_path):
    experiment = everything()
    experiment = replace(experiment, shapes=replace(experiment.shapes, domain=()))
    general = Configuration.of({"VEC": 4, "MODE": "plain", "FAST": True, "BLOCK": 64})
    files = export_files(run_of(experiment, cuda_device(90), general, general))
    assert "only the shapes that were confirmed are served" in files["k_2_in_1.h"]
    shapes = experiment.shapes
    own = (*shapes.tune, *shapes.held_out)
    others = [ShapeBinding({**binding.symbols, "n": 1 + binding.symbols["n"]}) for binding in own]
    listed = ", ".join(shape_literal("k_2_in_1", one) for one in (*own, *others))
    body = f"""
    k_2_in_1_shape s[] = {{{listed}}};
    int i;
    for (i = 0; i < {2 * len(own)}; ++i)
        printf("%d\\n", k_2_in_1_select(&s[i]) != K_2_IN_1_BASELINE);
    """
    assert execute(files, tmp_path, body) == ["1"] * len(own) + ["0"] * len(own)
