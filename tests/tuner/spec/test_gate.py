"""The static gate: every refusal for its stated reason, and no word against honest sources."""

import dataclasses
from pathlib import Path

import pytest

from tuner.spec.experiment import Experiment, Template
from tuner.spec.gate import gate
from tuner.spec.load import load_experiment

ROOT = Path(__file__).parents[3]
HONEST = sorted(
    path
    for folder in (ROOT / "deploy/experiments", ROOT / "tests/experiments/data")
    for path in folder.glob("*/*.yaml")
    if not path.name.startswith("template")
)


def bundled(language: str) -> tuple[Experiment, Template]:
    experiment = load_experiment(ROOT / f"deploy/experiments/silu_and_mul/{language}.yaml")
    assert experiment.template is not None
    return experiment, experiment.template


def with_source(template: Template, text: str) -> Template:
    return dataclasses.replace(template, source=dataclasses.replace(template.source, text=text))


@pytest.mark.parametrize("path", HONEST, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_bundled_templates_pass(path: Path) -> None:
    experiment = load_experiment(path)
    if experiment.template is not None:
        assert gate(experiment, experiment.template) == ()


OPENCL = {
    "int system(const char *command);\n": "declared but not defined",
    "extern int getpid(void);\n": "extern is not allowed",
    "extern\\\n int getpid(void);\n": "extern is not allowed",
    'void f(void) { printf("0 us\\n"); }\n': "printf is not allowed",
    'void f(void) { __asm__("syscall"); }\n': "inline assembly is not allowed",
    "__attribute__((constructor)) void f(void) {}\n": "attribute constructor",
    "#define BLOCK 64\n": "overrides a parameter",
    "#undef BLOCK\n": "overrides a parameter",
    "#ifndef VEC\n#define BLOCK 64\n#endif\n": "overrides a parameter",
    "#define half float\n": "changes the meaning of the language",
    "??=define half float\n": "changes the meaning of the language",
    "#define input other\n": "hides an argument",
    "#define silu_and_mul other\n": "changes the meaning of the language",
}


@pytest.mark.parametrize("added", OPENCL)
def test_opencl_refusals_name_their_reason(added: str) -> None:
    experiment, template = bundled("opencl")
    reasons = gate(experiment, with_source(template, added + template.source.text))
    assert any(OPENCL[added] in reason for reason in reasons), reasons


CUDA = {
    "__device__ void f() { cudaGridDependencySynchronize(); }\n": "after the timing ends",
    "__global__ void g() {}\n__device__ void f() { g<<<1, 1>>>(); }\n": "may not launch another",
    "__device__ void f() { cudaMalloc(nullptr, 4); }\n": "may not call the runtime",
    "__device__ long long f() { return clock64(); }\n": "can tell when it is timed",
    '__device__ void f() { asm("griddepcontrol.wait;"); }\n': "may not use 'griddepcontrol'",
    '__device__ void f() { asm("mov.u32 %0, 1; nanosleep.u32 9;"); }\n': "may not use 'nanosleep'",
    '__device__ void f() { asm("{ discard.global.L2 [%0], 128; }"); }\n': "may not use 'discard'",
    '#define HIDDEN "trap;"\n__device__ void f() { asm(HIDDEN); }\n': "may not use 'trap'",
    '__device__ void f() { asm(R"(exit;)"); }\n': "raw string literals",
}


@pytest.mark.parametrize("added", CUDA)
def test_cuda_refusals_name_their_reason(added: str) -> None:
    experiment, template = bundled("cuda")
    reasons = gate(experiment, with_source(template, added + template.source.text))
    assert any(CUDA[added] in reason for reason in reasons), reasons


HONEST_ADDITIONS = [
    "#ifndef BLOCK\n#define BLOCK 64\n#endif\n",
    "// printf, extern and #define half float are only mentioned here\n",
    "/* int system(const char *command); */\n",
    "int twice(int x);\nint twice(int x) { return 2 * x; }\n",
]


@pytest.mark.parametrize("added", HONEST_ADDITIONS)
def test_honest_additions_pass(added: str) -> None:
    experiment, template = bundled("opencl")
    assert gate(experiment, with_source(template, added + template.source.text)) == ()


def test_what_the_baseline_does_a_candidate_may_do() -> None:
    experiment, template = bundled("opencl")
    noisy = 'void note(void) { printf("x"); }\n'
    source = dataclasses.replace(
        experiment.kernel.source, text=noisy + experiment.kernel.source.text
    )
    kernel = dataclasses.replace(experiment.kernel, source=source)
    experiment = dataclasses.replace(experiment, kernel=kernel)
    assert gate(experiment, with_source(template, noisy + template.source.text)) == ()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("global half *restrict out, ", "", "takes 2 parameters, but is called with 3"),
        ("global half *restrict out", "global float *restrict out", "elements of float16"),
        ("int d)", "global int *d)", "d must be a value"),
        ("int d)", "float d)", "elements of int32"),
        ("global half *restrict out", "local half *restrict out", "must not be local memory"),
    ],
)
def test_the_parameters_must_be_the_arguments(old: str, new: str, reason: str) -> None:
    experiment, template = bundled("opencl")
    changed = with_source(template, template.source.text.replace(old, new))
    assert changed != template
    assert any(reason in given for given in gate(experiment, changed))


def test_vectors_of_the_element_type_are_the_same_elements() -> None:
    experiment, template = bundled("opencl")
    text = template.source.text.replace("global half *restrict out", "global half8 *restrict out")
    assert gate(experiment, with_source(template, text)) == ()
