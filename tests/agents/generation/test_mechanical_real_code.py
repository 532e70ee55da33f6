"""What the rules make of code as people write it: types, constants, helpers, sequences, vectors."""

from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter

from agents.generation.admission import refusal
from agents.generation.mechanical import MechanicalTemplate, mechanical_template
from tuner.experiment.model import Experiment, Launch, Memset
from tuner.plan import CellPlan
from tuner.space.feasible import feasible_set
from tuner.space.lower import lower
from tuner.trial import Configuration
from workers.backends.cuda.architectures import device_for

DEVICE = device_for("sm_90")

ARRAYS = [
    {"name": "out", "kind": "out", "dtype": "float32", "shape": ["n"], "align": 16},
    {"name": "x", "kind": "in", "dtype": "float32", "shape": ["n"], "align": 16},
    {"name": "n", "kind": "scalar", "dtype": "int32", "value": "n"},
]
ELEMENT = "  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;\n"


def made(
    source: str,
    *,
    entry: str = "k",
    launches: Sequence[object] = (),
    arguments: Sequence[object] = (),
    grid: str = "ceil_div(n, 256)",
    block: int = 256,
    **launch: object,
) -> MechanicalTemplate:
    """The template of a CUDA kernel over ``(out, x, n)``, admitted as a model's would be."""
    kernel = {
        "language": "cuda",
        "source": {"name": "k.cu", "text": source},
        "entry": entry,
        "launch": None if launches else {"grid": [grid], "block": [block], **launch},
        "launches": list(launches),
    }
    subject = TypeAdapter(Experiment).validate_python(
        {
            "version": 1,
            "name": "demo",
            "kernel": kernel,
            "arguments": [*ARRAYS, *arguments],
            "shapes": {"domain": ["n > 0"], "tune": [{"n": 1024}]},
        },
        strict=False,
    )
    result = mechanical_template(subject)
    assert refusal(subject, result.template) is None
    compile_some(subject, result)
    return result


def compile_some(subject: Experiment, result: MechanicalTemplate) -> None:
    """Its first and last configuration must compile."""
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    from workers.backends.cuda.compiler import open_compiler

    compiler = open_compiler(DEVICE)
    space = feasible_set(subject, result.template, DEVICE)
    for index in {0, len(space) - 1}:
        configuration: Configuration = space.configuration(index)
        shapes = subject.shapes.tune
        plan = lower(subject, result.template, configuration, shapes, DEVICE)
        assert any(isinstance(cell, CellPlan) for cell in plan.cells)
        for build in plan.builds:
            compiled = compiler.compile(build)
            assert hasattr(compiled, "code"), compiled


def launch_of(result: MechanicalTemplate, number: int = 0) -> tuple[str, str]:
    """Grid and block of a launch."""
    launch = result.template.steps[number]
    assert isinstance(launch, Launch)
    return launch.grid[0].text, launch.block[0].text


@pytest.mark.parametrize(
    ("definition", "used", "name", "value"),
    [
        ("#define UNROLL_FACTOR 8", "UNROLL_FACTOR", "UNROLL_FACTOR", 8),
        ("#define TILE (4 * 8)", "TILE", "TILE", 32),
        ("constexpr uint32_t UNROLL_FACTOR = 8u;", "UNROLL_FACTOR", "UNROLL_FACTOR_VALUE", 8),
        ("static constexpr int TILE = 1 << 4;", "TILE", "TILE_VALUE", 16),
        ("constexpr static std::int32_t TILE = 4;", "TILE", "TILE_VALUE", 4),
        ("const unsigned long CHUNK = 2, OTHER = 3;", "CHUNK", "CHUNK_VALUE", 2),
        ("enum { FIRST, ITEMS = 4 };", "ITEMS", "ITEMS_VALUE", 4),
        ("enum Sizes : int { ITEMS = 4, LAST };", "ITEMS", "ITEMS_VALUE", 4),
        ("struct T { static constexpr int STAGES = 2; };", "T::STAGES", "STAGES_VALUE", 2),
        ("constexpr int CHUNK = 2; constexpr int ALL = CHUNK * 3;", "ALL", "CHUNK_VALUE", 2),
    ],
)
def test_constants_of_every_form_become_parameters(definition, used, name, value) -> None:
    body = f"if (i < n) out[i] = x[i] * {used};"
    includes = "#include <cuda/std/cstdint>\nnamespace std { using ::cuda::std::int32_t; }\n"
    if "std::" not in definition:
        includes = ""  # they take longer to compile than all the rest
    result = made(
        f"{includes}{definition}\n__global__ void k(float* out, const float* x, int n) {{\n"
        f"{ELEMENT}  {body}\n}}\n"
    )
    assert value in result.template.parameters[name]
    assert len(result.template.parameters[name]) > 1


@pytest.mark.parametrize(
    "definition",
    ["#define THREADS_PER_WARP 32", "constexpr int BLOCK_MASK = 31;", "const int WARP_SIZE = 32;"],
)
def test_constants_of_the_hardware_stay(definition) -> None:
    name = definition.replace("=", " ").split()[-3 if "=" in definition else -2]
    result = made(
        f"{definition}\n__global__ void k(float* out, const float* x, int n) {{\n"
        f"{ELEMENT}  if (i < n) out[i] = x[i] * {name};\n}}\n"
    )
    assert not [one for one in result.template.parameters if "WARP" in one or "MASK" in one]


def test_a_constant_of_another_function_is_left_alone() -> None:
    result = made(
        "#define TILE 8\nint host() { const int CHUNK = 4; int i = CHUNK; return i; }\n"
        "__global__ void other(float* x) { x[TILE] = threadIdx.x; }\n"
        f"__global__ void k(float* out, const float* x, int n) {{\n{ELEMENT}"
        "  if (i < n) out[i] = x[i];\n}\n"
    )
    assert not {"TILE", "CHUNK_VALUE"} & result.template.parameters.keys()
    assert "ITEMS" in result.template.parameters


def test_a_default_of_a_kernel_template_becomes_a_parameter() -> None:
    result = made(
        "template <typename T, int UNROLL = 4, int TILE = 2>\n"
        "__global__ void k(T* out, const T* x, int n) {\n"
        f"{ELEMENT}  if (i < n) out[i] = x[i] * (UNROLL + TILE);\n}}\n",
        entry="k<float>",
    )
    assert result.template.entry == "k<float, {UNROLL_VALUE}, {TILE_VALUE}>"
    assert result.template.parameters["UNROLL_VALUE"] == (1, 2, 4, 8, 16)


PER_THREAD = """\
#define THREADS 256
constexpr int ITEMS_PER_THREAD = 4;
__global__ void k(float* out, const float* x, int n) {
  extern __shared__ float kept[];
  const int base = blockIdx.x * THREADS * ITEMS_PER_THREAD + threadIdx.x;
  for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
    const int i = base + item * THREADS;
    kept[threadIdx.x] = i < n ? x[i] : 0.0f;
    if (i < n) out[i] = kept[threadIdx.x];
  }
}
"""


def test_a_launch_follows_the_constants_that_its_numbers_hold() -> None:
    result = made(PER_THREAD, grid="ceil_div(n, 1024)", shared_bytes=1024)
    assert launch_of(result) == ("ceil_div(n, (ITEMS_PER_THREAD_VALUE * THREADS))", "THREADS")
    assert result.template.launch is not None
    shared = result.template.launch.shared_bytes
    for items, most in ((2, 1024), (4, 1024), (8, 2048)):
        names = {"THREADS": 256, "ITEMS_PER_THREAD_VALUE": items, "n": 1}
        assert shared.evaluate(names) == most


TILED = """\
#define TILE_DIM 32
#define BLOCK_ROWS 8
#define PART_X 16
__global__ void k(float* out, const float* x, int n) {
  __shared__ float tile[TILE_DIM][TILE_DIM];
  const int column = blockIdx.x * TILE_DIM + threadIdx.x;
  for (int row = threadIdx.y; row < TILE_DIM; row += BLOCK_ROWS) {
    tile[row][threadIdx.x] = x[(blockIdx.y * TILE_DIM + row) * n + column] + PART_X;
  }
  out[threadIdx.y] = tile[0][0];
}
"""


def test_constants_and_axes_of_the_launch_belong_together() -> None:
    launches = [{"grid": ["n // 32", "n // 32"], "block": [32, 8]}]
    template = made(TILED, launches=launches).template
    step = template.steps[0]
    assert isinstance(step, Launch)
    assert [axis.text for axis in step.grid] == ["n // TILE_DIM", "n // TILE_DIM"]
    assert [axis.text for axis in step.block] == ["TILE_DIM", "BLOCK_ROWS"]
    assert "TILE_DIM == 32 or (n) % TILE_DIM == 0" in [c.text for c in template.constraints]


def test_loops_of_called_functions_are_unrolled() -> None:
    result = made(
        "__device__ float power(float x, int times) {\n  float all = 1.0f;\n"
        "  for (int k = 0; k < times; ++k) all *= x;\n  return all;\n}\n"
        "__device__ float unrelated(float x) {\n  for (int k = 0; k < 9; ++k) x += k;\n"
        "  return x;\n}\n"
        f"__global__ void k(float* out, const float* x, int n) {{\n{ELEMENT}"
        "  if (i < n) out[i] = power(x[i], n);\n}\n"
    )
    assert "UNROLL" in result.template.parameters
    assert result.template.source.text.count("#pragma unroll UNROLL\n") == 1


def test_aligned_arrays_are_accessed_in_vectors() -> None:
    result = made(
        "__global__ void k(float* __restrict__ out, const float* __restrict__ x, int n) {\n"
        f"{ELEMENT}  if (i >= n) return;\n  out[i] = x[i] > 0.0f ? x[i] : expf(x[i]);\n}}\n"
    )
    assert result.template.parameters["VEC"] == (1, 2, 4)
    assert launch_of(result)[0] == "ceil_div(ceil_div(n, 256) * 256, BLOCK * ITEMS * VEC)"
    text = result.template.source.text
    assert "kw_of_x = *reinterpret_cast<const" in text
    assert "kw_of_out = *" not in text  # written throughout, so it need not be read


@pytest.mark.parametrize(
    "body",
    [
        "if (i < n) out[i] = x[i + 1];",
        "if (i < n) out[i] = *(x + i);",
        "if (i < n) atomicAdd(&out[i], __ldg(&x[i]));",
        "if (i < n) { n -= 1; out[i] = x[i]; }",
    ],
)
def test_other_accesses_stay_scalar(body) -> None:
    result = made(
        f"__global__ void k(float* out, const float* x, int n) {{\n{ELEMENT}  {body}\n}}\n"
    )
    text = result.template.source.text
    assert "kw_of_x" not in text


def test_elements_that_may_stay_are_read_before_they_are_written() -> None:
    result = made(
        "__global__ void k(float* out, const float* x, int n) {\n"
        f"{ELEMENT}  if (i < n) {{ if (x[i] > 0.0f) out[i] = x[i]; }}\n}}\n"
    )
    assert "kw_of_out = *reinterpret_cast<const" in result.template.source.text


SEQUENCE = """\
#define TILE 8
__global__ void scale(float* between, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  between[i] = 2.0f * x[i];
}
__device__ float total(const float* between, int n) {
  float sum = 0.0f;
  for (int k = threadIdx.x; k < n; k += blockDim.x) sum += between[k] * TILE;
  return sum;
}
__global__ void spread(float* out, const float* between, int n) {
  __shared__ float kept[1024];
  kept[threadIdx.x] = total(between, n);
  __syncthreads();
  for (int k = threadIdx.x; k < n; k += blockDim.x) out[k] = kept[0];
}
"""
LAUNCHES = [
    {"memset": "between"},
    {
        "entry": "scale",
        "grid": ["ceil_div(n, 128)"],
        "block": [128],
        "arguments": ["between", "x", "n"],
    },
    {"entry": "spread", "grid": [1], "block": [1024], "arguments": ["out", "between", "n"]},
]
BETWEEN = {"name": "between", "kind": "scratch", "dtype": "float32", "shape": ["n"], "align": 16}


def test_each_launch_of_a_sequence_has_its_own_parameters() -> None:
    result = made(SEQUENCE, entry="scale", launches=LAUNCHES, arguments=[BETWEEN])
    assert result.template.launch is None
    assert result.template.steps[0] == Memset(memset="between")
    assert launch_of(result, 1)[1] == "BLOCK_1"
    assert launch_of(result, 2) == ("1", "BLOCK_2")
    assert {"TILE", "UNROLL_2", "ITEMS_1", "VEC_1"} <= result.template.parameters.keys()
    assert {note.what for note in result.notes} >= {"BLOCK_1 of scale", "BLOCK_2 of spread"}


def test_a_kernel_that_is_launched_twice_keeps_its_block() -> None:
    twice = [LAUNCHES[1], LAUNCHES[1], LAUNCHES[2]]
    result = made(SEQUENCE, entry="scale", launches=twice, arguments=[BETWEEN])
    assert launch_of(result, 0)[1] == launch_of(result, 1)[1] == "128"
    assert launch_of(result, 2)[1] == "BLOCK_3"


@pytest.mark.parametrize("local", ["float residual = x[i];", "float j, residual = x[i];"])
def test_a_variable_named_as_another_kernel_does_not_call_it(local: str) -> None:
    stencil = (
        "__global__ void k(float* out, const float* x, int n) {\n"
        f"{ELEMENT}if (i >= n) return; {local} out[i] = residual; }}\n"
    )
    other = (
        "__global__ void residual(float* x) { __shared__ float sums[256];"
        " sums[threadIdx.x] = x[gridDim.x]; __syncthreads(); x[blockIdx.x] = sums[0]; }\n"
    )
    header = "#include <cstdint>\n"
    alone, both = made(header + stencil), made(header + stencil + other)
    assert "BLOCK" in alone.template.parameters
    assert both.template.parameters == alone.template.parameters


@pytest.mark.parametrize("declared", [", ", "; const int "])
@pytest.mark.parametrize(
    "guarded",
    [
        "if (col < n && row < n) out[row * n + col] = 1;",
        "if ((row < n) && (col < n)) { out[row * n + col] = 1; }",
        "if ((col >= n) || (row >= n)) return; out[row * n + col] = 1;",
    ],
)
def test_both_axes_are_guarded(declared: str, guarded: str) -> None:
    column = "const int col = blockIdx.x * blockDim.x + threadIdx.x"
    row = "row = blockIdx.y * blockDim.y + threadIdx.y;"
    launch = {"grid": ["ceil_div(n, 32)", "ceil_div(n, 8)"], "block": [32, 8]}
    result = made(
        "__global__ void k(float* out, const float* x, int n) {"
        f" {column}{declared}{row} {guarded} }}",
        launches=[launch],
    )
    assert {"BLOCK_X", "BLOCK_Y"} <= result.template.parameters.keys()
    assert not any("%" in constraint.text for constraint in result.template.constraints)
