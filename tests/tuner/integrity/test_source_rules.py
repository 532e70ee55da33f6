"""Source rules: every refusal for its stated reason, and none of honest sources."""

import dataclasses
import time
from pathlib import Path

import pytest
import yaml

from tuner.experiment.fields import Source
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, Template
from tuner.expressions import Expression
from tuner.integrity.source_rules import source_violations

ROOT = Path(__file__).parents[3]
HONEST = sorted(
    path
    for path in (ROOT / "deploy/experiments").glob("*/*.yaml")
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
        assert source_violations(experiment, experiment.template) == ()


OPENCL = {
    "int system(const char *command);\n": "declared but not defined",
    "extern int getpid(void);\n": "extern is not allowed",
    "extern\\\n int getpid(void);\n": "extern is not allowed",
    'void f(void) { printf("0 us\\n"); }\n': "printf is not allowed",
    "int f(void) { return __TIME__[0] == '1'; }\n": "compiled elsewhere, could be another kernel",
    'void f(void) { __asm__("syscall"); }\n': "inline assembly is not allowed",
    "__attribute__((constructor)) void f(void) {}\n": "attribute constructor",
    "#define BLOCK 64\n": "overrides a parameter",
    "#undef BLOCK\n": "overrides a parameter",
    "#ifndef VEC\n#define BLOCK 64\n#endif\n": "overrides a parameter",
    "#define half float\n": "changes the meaning of the language",
    "??=define half float\n": "changes the meaning of the language",
    "#define input other\n": "hides an argument",
    "#define silu_and_mul other\n": "changes the meaning of the language",
    "#define EXP_native 0\n": "overrides a parameter",
    '#define G(a, b) a##b\nvoid f(void) { G(__as, m__)("nop"); }\n': "inline assembly",
    "#define G(a, b) a%:%:b\nvoid f(void) { G(pri, ntf)(0); }\n": "printf is not allowed",
    "#define F(n) int n(void);\nF(getpid)\n": "getpid is declared but not defined",
    "#if 1\n#define F(n) int n(void);\n#else\n#define F(n)\n#endif\nF(getpid)\n": "getpid is decl",
    "int getpid(void), other;\n": "getpid is declared but not defined",
    "int (getpid)(void);\n": "getpid is declared but not defined",
    "int getpid(void) __attribute__((pure));\n": "getpid is declared but not defined",
    "typedef int F(void); F getpid;\n": "declared but not defined",
    "// \r extern int x;\n": "extern is not allowed",
    "int pr\\u0069ntx;\n": "universal character names",
    "ulong f(void) { return __builtin_readcyclecounter(); }\n": "__builtin_readcyclecounter",
    "ulong f(void) { return __builtin_ia32_rdtsc(); }\n": "__builtin_ia32_rdtsc",
    "ulong f(void) { return clock_read_device(); }\n": "can tell when it is timed",
    "#pragma redefine_extname twice getpid\n": "#pragma redefine_extname",
    '_Pragma("weak twice = getpid")\n': "#pragma weak",
    '_Pragma\n("weak twice = getpid")\n': "#pragma weak",
    '#define A "weak a = getpid"\n#define P(x) _Pragma(x)\nP(A)\n': "#pragma weak",
    '#pragma clang section text=".init"\n': "#pragma section",
    "#define A A2 A2\n"
    + "".join(f"#define A{n} A{n + 1} A{n + 1}\n" for n in range(2, 40))
    + "A\n": ("expand to more than"),
    "".join(f"#undef Q\n#define Q {n}\n" for n in range(40)): "in more than 16 ways",
    "__attribute((__constructor__)) void f(void) {}\n": "attribute __constructor__",
    "__attribute__((address_space(257))) int *p;\n": "attribute address_space",
    "/**/ # /**/ define/**/half float\n": "changes the meaning of the language",
}


@pytest.mark.parametrize("added", OPENCL)
def test_opencl_refusals_name_their_reason(added: str) -> None:
    experiment, template = bundled("opencl")
    reasons = source_violations(experiment, with_source(template, added + template.source.text))
    assert any(OPENCL[added] in reason for reason in reasons), reasons


def test_a_kernel_that_is_launched_dependently_may_wait_for_the_one_ahead():
    experiment, template = bundled("cuda")
    waits = (
        '__device__ void f() { asm("griddepcontrol.wait;"); cudaGridDependencySynchronize(); }\n'
    )
    waiting = with_source(template, waits + template.source.text)
    assert source_violations(experiment, waiting)
    (launch,) = waiting.steps
    dependent = dataclasses.replace(
        waiting, launch=dataclasses.replace(launch, dependent=Expression.parse("True"))
    )
    assert source_violations(experiment, dependent) == ()


CUDA = {
    "__device__ void f() { cudaGridDependencySynchronize(); }\n": "with 'dependent'",
    "__global__ void g() {}\n__device__ void f() { g<<<1, 1>>>(); }\n": "may not launch another",
    "__device__ void f() { cudaMalloc(nullptr, 4); }\n": "may not call the runtime",
    "__device__ long long f() { return clock64(); }\n": "can tell when it is timed",
    "#ifdef __CUDACC_RTC__\n#define FAST 1\n#endif\n": "another compiler sees is not measured",
    '__device__ void f() { asm(R"(exit;)"); }\n': "raw string literals",
    '__device__ const char* s = R"(")"; long long f() { return clock64(); }\n': "raw string",
    "__device__ int f() { int a = 1'000; return clock(); int b = 2'000; }\n": "clock is not",
    "#define G(a, b) a##b\n__device__ long long f() { return G(clo, ck64)(); }\n": "clock64",
    "??=define __half float\n": "changes the meaning of the language",
}


@pytest.mark.parametrize("added", CUDA)
def test_cuda_refusals_name_their_reason(added: str) -> None:
    experiment, template = bundled("cuda")
    reasons = source_violations(experiment, with_source(template, added + template.source.text))
    assert any(CUDA[added] in reason for reason in reasons), reasons


HONEST_ADDITIONS = [
    "#ifndef BLOCK\n#define BLOCK 64\n#endif\n",
    "// printf, extern and #define half float are only mentioned here\n",
    "/* int system(const char *command); */\n",
    "int twice(int x);\nint twice(int x) { return 2 * x; }\n",
    "void f(global float *p) { if (p[0] > 0) p[1] = 0; else vstore4((float4)(0), 0, p); }\n",
    "#define CAT_(a, b) a##b\n#define CAT(a, b) CAT_(a, b)\nfloat4 g = CAT(vload, 4)(0, p);\n",
    "#define MAX(a, b) ((a) > (b) ? a : b)\nint f(int a) { return MAX(MAX(a, 1), MAX(2, a)); }\n",
    "#define exp(x) native_exp(x)\n#define EACH(f) f(0) f(1) f(2)\n",
    "float f(float x) { return __builtin_expect(x > 0, 1) ? fabs(x) : __builtin_fabsf(x); }\n",
    "#pragma OPENCL EXTENSION cl_khr_fp16 : disable\n#pragma unroll\n",
    "float f(float as, float m) { return as + m, fma(as, m, as); }\n",
    "void f(global float *p) { vstore_half(vload_half(0, p), 0, p); vstore2(3 * *p, 1, p); }\n",
    "void f(local float *p) { do barrier(CLK_LOCAL_MEM_FENCE); while (p[0] > 1); }\n",
    "int f(int x) { switch (x) { case 1: return abs(x); default: return max(x, 'a'); } }\n",
]

WAIT = (
    '"{\\n\\t.reg .pred p;\\nWAIT:\\n\\tmbarrier.try_wait.shared::cta.b64 p, [%0], %1;\\n\\t"\n'
    '"@p bra DONE;\\n\\tbra WAIT;\\nDONE: // done\\n\\t}"'
)
"""As kernels for Hopper wait for a copy."""

HONEST_CUDA = [
    f'__device__ void f(int b, int n) {{ asm volatile({WAIT} :: "r"(b), "r"(n)); }}\n',
    "__device__ int f(int x) { return x + 1'000'000 + '\\''; }\n",
    '#pragma unroll 4\n#define ROLLED _Pragma("unroll")\nROLLED void f(int section) {}\n',
    '__device__ void f(int* x) { asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(*x) : "l"(x)); }',
    'void f(int* x) { asm("{\\n\\t.reg .pred p;\\n\\t@!p add.u32 %0, %0, 1;\\n}" : "+r"(*x)); }\n',
    '#define LD(t) "ld.global." #t " %0, [%1];"\nvoid f(int* x) { asm(LD(u32) : "=r"(*x)); }',
    '__device__ int f() { unsigned s; asm("mov.u32 %0, %%smid;" : "=r"(s)); return s; }\n',
    "template <int N> __device__ float f(float (&x)[N]) { return x[0] < N >> 1 ? x[1] : 0; }\n",
    'static_assert(sizeof(int4) == 16, "four words, and no printf");\n',
]


@pytest.mark.parametrize("added", HONEST_ADDITIONS)
def test_honest_additions_pass(added: str) -> None:
    experiment, template = bundled("opencl")
    assert source_violations(experiment, with_source(template, added + template.source.text)) == ()


@pytest.mark.parametrize("added", HONEST_CUDA)
def test_honest_additions_to_cuda_pass(added: str) -> None:
    experiment, template = bundled("cuda")
    assert source_violations(experiment, with_source(template, added + template.source.text)) == ()


EXPLOITS = sorted(
    path
    for path in (ROOT / "tests/exploits").glob("*/honest.cl")
    if "printf" not in path.read_text()
)


@pytest.mark.parametrize("path", EXPLOITS, ids=lambda path: path.parent.name)
def test_the_honest_twins_of_every_exploit_pass(path: Path) -> None:
    folder = path.parent
    case = yaml.safe_load((folder / "case.yaml").read_text())
    experiment = load_experiment(
        ROOT / f"tests/exploits/experiments/{case['experiment']}/experiment.yaml"
    )
    kernel = experiment.kernel
    template = Template(
        source=Source(name="honest.cl", text=path.read_text()),
        entry=kernel.entry,
        parameters={"ONE": (1,)},
        launch=kernel.launch,
    )
    assert source_violations(experiment, template) == ()


def test_what_the_baseline_does_a_candidate_may_do() -> None:
    experiment, template = bundled("opencl")
    noisy = 'void note(void) { printf("x"); }\n'
    source = dataclasses.replace(
        experiment.kernel.source, text=noisy + experiment.kernel.source.text
    )
    kernel = dataclasses.replace(experiment.kernel, source=source)
    experiment = dataclasses.replace(experiment, kernel=kernel)
    assert source_violations(experiment, with_source(template, noisy + template.source.text)) == ()


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
    assert any(reason in given for given in source_violations(experiment, changed))


def test_a_bool_may_be_a_byte() -> None:
    experiment, template = bundled("opencl")
    out, *others = experiment.arguments
    experiment = dataclasses.replace(
        experiment, arguments=(dataclasses.replace(out, dtype="bool"), *others)
    )
    text = template.source.text.replace("global half *restrict out", "global uchar *restrict out")
    assert source_violations(experiment, with_source(template, text)) == ()


def test_vectors_of_the_element_type_are_the_same_elements() -> None:
    experiment, template = bundled("opencl")
    text = template.source.text.replace("global half *restrict out", "global half8 *restrict out")
    assert source_violations(experiment, with_source(template, text)) == ()


def test_a_long_source_is_read_in_little_more_time_than_it_takes_to_read_it() -> None:
    experiment, template = bundled("opencl")
    calls = "void g(void) {" + "f(1);" * 3_000 + "}\n"
    added = "".join(f"int f{number}(int a);\n" for number in range(3_000))
    began = time.process_time()
    long = with_source(template, template.source.text + calls + added)
    reasons = source_violations(experiment, long)
    assert time.process_time() - began < 3
    assert len([reason for reason in reasons if "declared but not defined" in reason]) == 3_000


def test_host_code_is_not_judged_but_what_it_hides_is() -> None:
    experiment, template = bundled("cuda")
    kernel = template.steps[0].entry or template.entry
    host = (
        '#include <cstdio>\nint main() {\n  printf("%d", 1); cudaMalloc(0, 1);\n'
        f"  {kernel}<<<1, 2>>>();\n}}\n"
    )
    assert source_violations(experiment, with_source(template, template.source.text + host)) == ()
    macro = f"#define LAUNCH {kernel}<<<1, 2>>>()\n"
    text = macro + template.source.text
    assert source_violations(experiment, with_source(template, text)) == ()
    again = text + "__device__ void again() { LAUNCH; }\n"
    reasons = source_violations(experiment, with_source(template, again))
    assert any("<<<…>>> is not allowed" in reason for reason in reasons)
    called = "__device__ long long ticks() { return clock64(); }\n" + host
    head, name, body = template.source.text.partition(f" {kernel}(")
    text = head + name + body.replace("{", "{ ticks();", 1)
    reasons = source_violations(experiment, with_source(template, called + text))
    assert any("clock64 is not allowed" in reason for reason in reasons)
