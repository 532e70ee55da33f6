"""What the mechanical rules find in a kernel's text, and what they leave alone."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from agents.generation.admission import refusal
from agents.generation.mechanical import MechanicalTemplate, mechanical_template
from tuner.errors import SpecError
from tuner.experiment.model import Experiment

HALF = {"name": "x", "kind": "inout", "dtype": "float16", "shape": ["n"], "align": 16}


def experiment(
    source: str,
    *,
    language: str = "opencl",
    grid: object = ("ceil_div(n, 64)",),
    block: object = (64,),
    entry: str = "k",
    **launch: object,
) -> Experiment:
    return TypeAdapter(Experiment).validate_python(
        {
            "version": 1,
            "name": "demo",
            "kernel": {
                "language": language,
                "source": {"name": "k.cl", "text": source},
                "entry": entry,
                "launch": {"grid": list(grid), "block": list(block), **launch},  # type: ignore[call-overload]
            },
            "arguments": [
                HALF,
                {"name": "n", "kind": "scalar", "dtype": "int32", "value": "n"},
            ],
            "shapes": {"tune": [{"n": 1024}]},
        },
        strict=False,
    )


def made(source: str, **given: object) -> MechanicalTemplate:
    """The template, which must pass every gate that a model's template passes."""
    subject = experiment(source, **given)  # type: ignore[arg-type]
    result = mechanical_template(subject)
    assert refusal(subject, result.template) is None
    return result


def why(result: MechanicalTemplate, what: str) -> str:
    return next(note.why for note in result.notes if note.what == what)


def constraints(result: MechanicalTemplate) -> list[str]:
    return [constraint.text for constraint in result.template.constraints]


GUARDED = "kernel void k(global half *x, int n) {{ int i = get_global_id(0); {guard} x[i] = 1; }}"


@pytest.mark.parametrize(
    "guard",
    [
        "if (i >= n) return;",
        "if (i >= n || n == 3) { return; }",
        "int j = i * 2; if (i>=n) return;",
        "if (n < 0) return; if (i >= n) return;",
    ],
)
def test_a_kernel_that_returns_past_the_end_may_overhang(guard: str) -> None:
    result = made(GUARDED.format(guard=guard))
    assert constraints(result) == ["ITEMS > 1 and BLOCK > 1 or not STRIDED"]


@pytest.mark.parametrize(
    "guard",
    [
        "",
        "if (i > n) return;",
        "if (i >= n && n > 5) return;",
        "for (int j = 0; j < 2; ++j) if (i >= n) return;",
        "i += 5; if (i >= n) return;",
        "if (i >= n) x[0] = 2;",
        "if (i < n) { x[i] = 2; }",
        "// if (i >= n) return;",
    ],
)
def test_else_the_sizes_must_divide(guard: str) -> None:
    result = made(GUARDED.format(guard=guard + "\n"))
    assert "(ceil_div(n, 64) * 64) % (BLOCK * ITEMS) == 0" in constraints(result)


def test_a_body_inside_one_test_is_guarded() -> None:
    result = made(
        "kernel void k(global half *x, int n) { size_t i = get_global_id(0);"
        " if (i < n && n > 0) { x[i] = 1; } }"
    )
    assert len(constraints(result)) == 1


@pytest.mark.parametrize(
    "body", ["int i = get_global_id(0), j = n; if (i < n) x[i] = j;", "int i = get_global_id(0);"]
)
def test_a_test_without_braces_guards_too(body: str) -> None:
    guarded = "if" in body
    result = made(f"kernel void k(global half *x, int n) {{ {body} }}")
    assert len(constraints(result)) == (1 if guarded else 2)


def test_a_constant_with_a_comment_beside_it_becomes_a_parameter() -> None:
    result = made(
        "#define UNROLL_BY 4 // iterations\n#define TILE 8 /* rows */\n"
        "kernel void k(global half *x, int n) { x[UNROLL_BY + TILE] = 1; }"
    )
    assert result.template.parameters.keys() >= {"UNROLL_BY", "TILE"}
    assert "#define" not in result.template.source.text


@pytest.mark.parametrize(
    "statement",
    [
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "local float t[64];",
        "x[i] = sub_group_reduce_add(x[i]);",
        "x[i] = get_local_id(0);",
        "x[i] = get_num_groups(0);",
        "uint a = 0; x[i] = get_global_id(a);",
    ],
)
def test_a_kernel_that_depends_on_its_blocks_keeps_them(statement: str) -> None:
    source = (
        "kernel void k(global half *x, int n) { int i = get_global_id(0); "
        f"if (i >= n) return; {statement} }}"
    )
    with pytest.raises(SpecError, match="work-items communicate, or read more"):
        made(source)


def test_a_block_that_asks_for_its_size_may_be_smaller() -> None:
    result = made(
        "kernel void k(global half *x, int n) { local float s[256];"
        " for (int i = get_local_id(0); i < n; i += get_local_size(0)) s[0] = 1; }",
        grid=[1],
        block=[256],
    )
    assert result.template.parameters["BLOCK"] == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert result.template.launch is not None
    assert [axis.text for axis in result.template.launch.block] == ["BLOCK"]
    assert "ITEMS" not in result.template.parameters


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("if (l < n) x[l] = s[0];", "no loop steps by the block size"),
        (
            (
                "if (n) for (; l < n; l += size) s[l] = 1;"
                " if (n) for (int w = 128; w > 0; w /= 2) s[l] += s[w];"
            ),
            "a number in the source may stand for its size, 256",
        ),
    ],
)
def test_a_block_that_may_rely_on_its_size_keeps_it(statement: str, reason: str) -> None:
    source = (
        "kernel void k(global half *x, int n) { local float s[256]; int l = get_local_id(0);"
        f" int size = get_local_size(0); {statement} }}"
    )
    with pytest.raises(SpecError, match=reason):
        made(source, grid=[1], block=[256])


def test_a_loop_may_step_by_a_variable_made_from_the_block_size() -> None:
    result = made(
        "kernel void k(global half *x, int n) { int warps = get_local_size(0);"
        " int step = warps * 4; for (int i = 0; i < n; i += step) x[i] = 1; }",
        grid=[1],
        block=["n // 4"],
    )
    assert result.template.parameters["BLOCK"][-1] == 1024


HELPER = (
    "static int half_of(void) {{ return {helper}; }}\n"
    "kernel void k(global half *x, int n) {{ int i = get_global_id(0);"
    " if (i >= n) return; x[i] = half_of(); }}"
)


def test_an_index_asked_for_elsewhere_is_not_coarsened() -> None:
    result = made(HELPER.format(helper="get_global_id(0) / 2"))
    assert list(result.template.parameters) == ["BLOCK"]
    result = made(HELPER.format(helper="get_global_id(1) / 2"))
    assert list(result.template.parameters) == ["BLOCK", "ITEMS", "STRIDED"]


@pytest.mark.parametrize("meaning", ["get_local_id(0)", "barrier(0)"])
def test_macros_and_headers_count_as_source(meaning: str) -> None:
    where, plain = f"#define LOOK {meaning}\n", HELPER.format(helper="1; LOOK")
    with pytest.raises(SpecError, match="work-items communicate"):
        made(where + plain)
    subject = experiment(plain)
    kernel = replace(subject.kernel, headers=(("k.h", where),))
    with pytest.raises(SpecError, match="work-items communicate"):
        mechanical_template(replace(subject, kernel=kernel))


def test_a_block_of_unknown_size_is_capped_and_bounded() -> None:
    result = made(
        'extern "C" __global__ void k(__half* x, int n) {\n'
        "  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = 1; }",
        language="cuda",
        grid=[1],
        block=["min(n // 8, 1024)"],
    )
    assert result.template.launch is not None
    assert [axis.text for axis in result.template.launch.block] == ["min(min(n // 8, 1024), BLOCK)"]
    assert "__global__ __launch_bounds__(BLOCK, RESIDENT) void k" in result.template.source.text
    assert result.template.parameters["UNROLL"] == (0, 2, 4, 8)


def test_a_grid_stride_loop_takes_any_grid() -> None:
    result = made(
        "__global__ void k(__half* x, int n) {\n"
        "  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;\n"
        "       i += gridDim.x * blockDim.x) x[i] = 1; }",
        language="cuda",
    )
    assert result.template.launch is not None
    assert [axis.text for axis in result.template.launch.grid] == [
        "ceil_div(ceil_div(n, 64) * 64, BLOCK * TURNS)"
    ]


@pytest.mark.parametrize(
    ("index", "kept"),
    [
        ("blockIdx.x * blockDim.x + threadIdx.x", "((unsigned int)kw_index)"),
        ("threadIdx.x + blockDim.x * blockIdx.x", "((unsigned int)kw_index)"),
        ("(size_t)blockIdx.x * blockDim.x + threadIdx.x", "((size_t)kw_index)"),
        ("(uint64_t)blockDim.x * blockIdx.x + threadIdx.x", "((uint64_t)kw_index)"),
        ("size_t(blockIdx.x) * blockDim.x + threadIdx.x", "((size_t)kw_index)"),
        ("static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x", "((long long)kw_index)"),
        ("(blockIdx.x * blockDim.x) + threadIdx.x", "((unsigned int)kw_index)"),
        ("(int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x", "((int)kw_index)"),
    ],
)
def test_the_index_keeps_its_type(index: str, kept: str) -> None:
    result = made(
        f"__global__ void k(__half* x, int n) {{ auto i = {index};"
        " if (i >= n) return; x[i] = 1; }",
        language="cuda",
    )
    assert f"auto i = {kept};" in result.template.source.text
    assert "k_element(x, n, kw_index);" in result.template.source.text


BY_ROW = (
    "kernel void k(global half *x, int n) {{ const int row = {index};\n"
    "  if (row >= n) return;\n  for (int j = 0; j < 2; ++j) x[row] += x[row] * j; }}"
)
SIZE, GROUP, ITEM = "get_local_size({})", "get_group_id({})", "get_local_id({})"


@pytest.mark.parametrize(
    ("index", "kept", "axis"),
    [
        (f"{GROUP} * {SIZE} + {ITEM}", "kw_index", 0),
        (f"{GROUP} * {SIZE} + {ITEM}", "kw_index", 1),
        (f"{GROUP} * {SIZE} + {ITEM}", "kw_index", 2),
        (f"{SIZE} * {GROUP} + {ITEM}", "kw_index", 0),
        (f"{ITEM} + {SIZE} * {GROUP}", "kw_index", 0),
        (f"{ITEM} + ({GROUP} * {SIZE})", "kw_index", 0),
        (f"({GROUP}*{SIZE})+{ITEM}", "kw_index", 0),
        (f"(int)({GROUP} * {SIZE} + {ITEM})", "(int)(kw_index)", 0),
        (f"(int){GROUP} * (int){SIZE} + (int){ITEM}", "((int)kw_index)", 0),
        (f"(uint){GROUP} * (int){SIZE} + (int){ITEM}", "((uint)kw_index)", 0),
        (f"(int){GROUP} * {SIZE} + {ITEM}", "kw_index", 0),
        (f"(size_t){GROUP} * {SIZE} + (size_t) {ITEM}", "kw_index", 0),
    ],
)
def test_a_computed_global_index_is_one(index: str, kept: str, axis: int) -> None:
    block = [64 if number == axis else 1 for number in range(axis + 1)]
    grid = ["ceil_div(n, 64)" if size == 64 else 1 for size in block]
    computed = made(BY_ROW.format(index=index.format(axis, axis, axis)), grid=grid, block=block)
    asked = made(BY_ROW.format(index=f"get_global_id({axis})"), grid=grid, block=block)
    assert computed.template.parameters == asked.template.parameters
    assert computed.template.launch == asked.template.launch
    assert constraints(computed) == constraints(asked)
    assert (f"row = {kept};" in computed.template.source.text) == (axis == 0)


@pytest.mark.parametrize(
    "index",
    [
        f"2 * {GROUP} * {SIZE} + {ITEM}",
        f"2 * (int){GROUP} * {SIZE} + {ITEM}",
        f"{GROUP} * {SIZE} + {ITEM} * 4",
        f"n - {GROUP} * {SIZE} + {ITEM}",
        f"abs({GROUP} * {SIZE}) + {ITEM}",
        f"{GROUP} * ({SIZE} * 2) + {ITEM}",
    ],
)
def test_what_is_not_a_global_index_fixes_the_block(index: str) -> None:
    source = BY_ROW.format(index=index.format(0, 0, 0)).replace("++j", "j += get_local_size(0)")
    assert "BLOCK" not in made(source).template.parameters


@pytest.mark.parametrize("product", ["group * size", "(size * 2) * (int)group"])
def test_variables_that_hold_block_and_size_count_too(product: str) -> None:
    result = made(
        "kernel void k(global half *x, int n) { int group = (int)get_group_id(0);\n"
        "  int size = get_local_size(0), first = " + product + ";\n"
        "  for (int j = get_local_id(0); j < n; j += size) x[first + j] = 1; }",
        grid=["n"],
    )
    assert why(result, "block[0]") == "not tuned: the number of blocks may depend on their size"


@pytest.mark.parametrize(
    ("grid", "block", "fixed"),
    [
        ("ceil_div(n, 64)", 64, True),
        ("ceil_div(n, 128)", 64, True),
        ("ceil_div(n, min(n, 512))", "min(n, 512)", True),
        ("ceil_div(n, 16)", 64, False),
        ("ceil_div(n, 192)", 64, False),
        ("64", 64, False),
        ("n", "min(n, 512)", False),
    ],
)
def test_a_grid_that_divides_by_the_block_fixes_it(grid: str, block: object, fixed: bool) -> None:
    result = made(
        "kernel void k(global half *x, int n) { int first = get_group_id(0) * 192;\n"
        "  for (int j = get_local_id(0); j < n; j += get_local_size(0)) x[first + j] = 1; }",
        grid=[grid],
        block=[block],
    )
    assert ("BLOCK" in result.template.parameters) != fixed


def test_a_template_kernel_is_not_coarsened() -> None:
    result = made(
        "template <typename T> __global__ void k(T* x, int n) {"
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; x[i] = 1; }",
        language="cuda",
        entry="k<__half>",
    )
    assert "ITEMS" not in result.template.parameters
    assert "BLOCK" in result.template.parameters
    assert result.template.entry == "k<__half>"


def test_bounds_of_the_kernel_give_way_to_the_parameter() -> None:
    result = made(
        "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void k(global half *x, int n) {"
        " int i = get_global_id(0); if (i >= n) return; x[i] = 1; }"
    )
    assert "reqd_work_group_size(64" not in result.template.source.text
    assert "reqd_work_group_size(BLOCK, 1, 1)" in result.template.source.text


CONSTANT = (
    "#define {name} {value}\nkernel void k(global half *x, int n) {{\n"
    "  int i = get_group_id(0) * {name} + get_local_id(0);\n  x[i] = 1;\n}}\n"
)


def test_a_block_constant_and_the_launch_move_together() -> None:
    result = made(CONSTANT.format(name="BLOCK_SIZE", value=64))
    assert result.template.parameters == {"BLOCK_SIZE": (16, 32, 64, 128, 256)}
    assert result.template.launch is not None
    assert [axis.text for axis in result.template.launch.grid] == ["ceil_div(n, BLOCK_SIZE)"]
    assert [axis.text for axis in result.template.launch.block] == ["BLOCK_SIZE"]
    assert "#define" not in result.template.source.text
    assert result.template.source.text.count("\n") >= 5


def test_a_constant_that_the_launch_may_hold_is_left_alone() -> None:
    source = CONSTANT.format(name="ITEMS_PER_THREAD", value=4) + "// x\n"
    with pytest.raises(SpecError, match="the launch may depend on its value"):
        made(source, grid=["ceil_div(n, 12)"])


def test_a_constant_of_the_operation_is_left_alone() -> None:
    with pytest.raises(SpecError, match="nothing to vary"):
        made(CONSTANT.format(name="CLASSES", value=10))


def test_a_width_stays_within_the_promised_alignment() -> None:
    result = made(CONSTANT.format(name="VEC", value=4), grid=["n"])
    assert result.template.parameters["VEC"] == (1, 2, 4, 8)
    assert "VEC == 4 or (n) % VEC == 0" in constraints(result)


TEMPLATED = (
    "template <typename T, int BLOCK, int VEC>\n__global__ void k(T* x, int n) {\n"
    "  int i = blockIdx.x * BLOCK + threadIdx.x;\n"
    "  for (int v = 0; v < VEC; ++v) x[i * VEC + v] = 1;\n}\n"
)


def test_arguments_of_a_kernel_template_become_parameters() -> None:
    result = made(
        TEMPLATED, language="cuda", entry="k<float, 64, 2>", grid=["ceil_div(n, 64)"], block=[64]
    )
    assert result.template.entry == "k<float, {BLOCK_VALUE}, {VEC_VALUE}>"
    assert result.template.parameters["BLOCK_VALUE"] == (16, 32, 64, 128, 256)
    assert result.template.parameters["VEC_VALUE"] == (1, 2, 4, 8)
    assert result.template.launch is not None
    assert [axis.text for axis in result.template.launch.block] == ["BLOCK_VALUE"]


def test_an_argument_of_the_operation_is_left_alone() -> None:
    source = TEMPLATED.replace("BLOCK", "CLASSES")
    result = made(source, language="cuda", entry="k<float, 64, 2>", grid=["n"], block=[1])
    assert result.template.entry == "k<float, 64, {VEC_VALUE}>"


def test_a_loop_may_count_its_turns_by_the_block_size() -> None:
    source = (
        "__global__ void k(__half* x, int n) {\n  unsigned threads = blockDim.x * 2;\n"
        "  unsigned turns = (n + threads - 1) / threads;\n"
        "  for (unsigned turn = 0; turn < turns; ++turn) {\n"
        "    unsigned i = turn * threads + threadIdx.x;\n    if (i < n) x[i] = 1;\n  }\n}\n"
    )
    result = made(source, language="cuda", grid=["1"], block=[256])
    assert result.template.parameters["BLOCK"] == (32, 64, 128, 256)


def test_numeric_unroll_pragmas_become_a_parameter_and_bare_ones_stay() -> None:
    result = made(
        "kernel void k(global half *x, int n) {\n"
        "#pragma unroll 3\n  for (int j = 0; j < n; ++j) x[j] = 1;\n"
        "#pragma unroll\n  for (int j = 0; j < 4; ++j) x[j] = 1;\n"
        "  for (int j = 0; j < n; ++j) {\n    for (int l = 0; l < n; ++l) x[l] = 1;\n  }\n}\n"
    )
    text = result.template.source.text
    assert result.template.parameters == {"UNROLL": (0, 2, 3, 4, 8)}
    assert text.count("#pragma unroll UNROLL\n") == 2
    assert text.count("#pragma unroll\n") == 1
    assert "#endif\n    for (int l" in text


@pytest.mark.parametrize(
    "guarded",
    [
        "if (i < n) { for (int j = 0; j < n; ++j) x[j] = 1; }",
        "if (i < n) { float s = 0; for (int j = 0; j < n; ++j) s += x[j]; x[i] = s; }",
        "if (i < n) {\n    for (int j = 0; j < n; ++j) x[j] = 1;\n  }",
    ],
)
def test_a_loop_inside_an_if_is_unrolled(guarded: str) -> None:
    source = f"kernel void k(global half *x, int n) {{\n  int i = n - 1; {guarded}\n}}\n"
    result = made(source)
    lines = result.template.source.text.splitlines()
    at = lines.index("#pragma unroll UNROLL")
    assert lines[at + 1] == "#endif"
    assert lines[at + 2].strip().startswith("for (int j = 0;")


@pytest.mark.parametrize(
    "body",
    [
        "if (n > 1)\n    for (int j = 0; j < n; ++j) x[j] = 1;",
        'if (n > 1) { _Pragma("unroll") for (int j = 0; j < n; ++j) x[j] = 1; }',
    ],
)
def test_why_no_loop_is_unrolled_is_said(body: str) -> None:
    subject = experiment(f"kernel void k(global half *x, int n) {{\n  {body}\n}}\n")
    with pytest.raises(SpecError, match="loops: none is unrolled: that takes an innermost `for`"):
        mechanical_template(subject)


def test_a_kernel_without_loops_is_not_told_how_to_write_them() -> None:
    subject = experiment("kernel void k(global half *x, int n) {\n  x[n] = 1;\n}\n")
    with pytest.raises(SpecError, match="loops: the kernel has none"):
        mechanical_template(subject)


def test_in_opencl_a_loop_with_a_barrier_is_not_unrolled() -> None:
    result = made(
        "kernel void k(global half *x, int n) {\n"
        "  for (int j = n; j; j /= 2) {\n    x[j] = 1;\n    barrier(CLK_GLOBAL_MEM_FENCE);\n  }\n"
        "  for (int j = 0; j < n; ++j) x[j] = 1;\n}\n"
    )
    text = result.template.source.text
    assert text.count("#pragma unroll UNROLL\n") == 1
    assert "#endif\n  for (int j = 0;" in text


def test_without_launch_bounds_the_registers_are_capped() -> None:
    result = made("__global__ void k(__half* x, int n) { x[n] = 1; }", language="cuda")
    assert result.template.parameters == {"REGISTERS": (0, 32, 64, 128)}
    assert why(result, "block[0]").startswith("not tuned: the kernel does not ask for its block")


def test_names_in_use_are_avoided() -> None:
    result = made(
        "kernel void k(global half *x, int n) { int BLOCK = 1; int i = get_global_id(0);"
        " if (i >= n) return; x[i] = BLOCK; }"
    )
    assert "KW_BLOCK" in result.template.parameters


def test_nothing_to_vary_says_why() -> None:
    with pytest.raises(SpecError, match=r"k\.cl: nothing to vary was found in k\n") as refused:
        made("kernel void k(global half *x, int n) { x[get_group_id(0)] = 1; }")
    assert "`template: FILE`), as docs/templates.md says" in str(refused.value)


def test_what_keeps_two_axes_from_varying_is_said_once() -> None:
    source = (
        "kernel void k(global half *x, int n) {\n  int i = get_global_id(0);\n"
        "  int j = get_global_id(1);\n  local half t[8][8];\n  t[j % 8][i % 8] = 1;\n}\n"
    )
    with pytest.raises(SpecError, match=r"block\[1\], block\[0\]: not tuned: ") as refused:
        made(source, grid=(8, 8), block=(8, 8))
    assert str(refused.value).count("work-items communicate") == 1


@pytest.mark.parametrize("source", ["", "kernel void other() {}", "kernel void k(", "}{", '"'])
def test_a_source_without_the_kernel_is_no_crash(source: str) -> None:
    with pytest.raises(SpecError, match="nothing to vary"):
        made(source)
