"""``validate``: stops at the baseline, shows progress, and tells each problem once."""

import re

import pytest

from cluster.commands.validate import validate
from tests.cluster.kernels import FAMILY as SCALE_FAMILY
from tests.cluster.kernels import KERNEL as SCALE_KERNEL
from tests.cluster.kernels import REFERENCE, TEMPLATE, write_experiment
from tests.cluster.kernels import SPEC as SCALE
from tuner.errors import NothingValid, SpecError

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

KERNEL = """\
extern "C" __global__ void scale(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * FACTOR;
}
int main() { scale<<<1, 1>>>(nullptr, nullptr, 0); }
"""
SPEC = """\
version: 1
name: scale
kernel:
  language: cuda
  source: scale.cu
  entry: scale
  launch: {grid: "ceil_div(n, 64)", block: 64}
arguments:
  - {name: out, kind: out, dtype: float32, shape: n}
  - {name: x, kind: in, dtype: float32, shape: n}
  - {name: n, kind: scalar, dtype: int32, value: n}
shapes: {domain: [1 <= n], tune: [{n: 1000}], held_out: [{n: 77}]}
"""


def check(folder, kernel=KERNEL, spec=SPEC):
    (folder / "scale.cu").write_text(kernel)
    (folder / "spec.yaml").write_text(spec)
    path = str(folder / "spec.yaml")
    validate(path, target="sm_90", fast=False, device=None, as_json=False)


def test_the_reference_is_called_at_the_smallest_shape(tmp_path, capsys):
    (tmp_path / "r.py").write_text("def f(x):\n    return 2 * x\ndef g(x):\n    return x[1:]\n")
    good = KERNEL.replace("FACTOR", "2")
    check(tmp_path, good, SPEC + "reference: r.py:f\nsearch: {trials: 1}\n")
    shown = capsys.readouterr()
    assert "calling the reference at n=77; a call may take 300 s\n" in shown.err
    assert re.search(r"reference: \S+ s at n=77, about \S+ s at n=1000 if it grows", shown.out)
    with pytest.raises(SpecError, match=r"reference r.py:g: out has shape \(76,\), not \(77,\)"):
        check(tmp_path, good, SPEC + "reference: r.py:g\n")


def test_buffers_without_alignment_are_named_with_what_to_write(tmp_path, capsys):
    path = write_experiment(tmp_path)
    validate(str(path), target=None, fast=True, device=None, as_json=False)
    assert "no align is given for out, x: templates cannot load" in capsys.readouterr().out
    path.write_text(SCALE.replace("shape: [n]}", "shape: [n], align: 16}"))
    validate(str(path), target=None, fast=True, device=None, as_json=False)
    assert "no align" not in capsys.readouterr().out


def test_a_constraint_that_cannot_be_evaluated_is_noted(tmp_path, capsys):
    path = write_experiment(tmp_path)
    with (tmp_path / "template.yaml").open("a") as template:
        template.write('constraints: ["64 // (BLOCK - 16) == 1"]\n')
    validate(str(path), target=None, fast=True, device=None, as_json=False)
    noted = "note: it cannot be evaluated for some of them: '64 // (BLOCK - 16) == 1': division by"
    assert f"{noted} zero at BLOCK=16\n" in capsys.readouterr().out


def test_a_budget_that_cannot_hold_a_run_is_an_error(tmp_path, capsys):
    path = write_experiment(tmp_path, spec=SCALE.replace("seconds: 60", "seconds: 1"))
    with pytest.raises(SpecError, match=r"search.seconds is 1, and preparing and confirming"):
        validate(str(path), target=None, fast=True, device=None, as_json=False)
    assert "estimated run: 6 of 6 configurations" in capsys.readouterr().out


def test_a_baseline_that_differs_from_its_reference_is_an_error(tmp_path, capsys):
    wrong = write_experiment(tmp_path, reference=REFERENCE.replace("3.0", "2.0"))
    wrong.write_text(f"{wrong.read_text()}# guess: this line\n")
    line = len(wrong.read_text().splitlines())
    said = rf"n=777: the baseline disagrees with its reference.*; 1 guess needs review: line {line}"
    with pytest.raises(NothingValid, match=rf"(?s){said}"):
        validate(str(wrong), target=None, fast=False, device=None, as_json=False)
    assert "no errors found" not in capsys.readouterr().out
    right = write_experiment(tmp_path)
    validate(str(right), target=None, fast=False, device=None, as_json=False)
    shown = capsys.readouterr().out
    assert "the baseline equals the reference, at n=777 and n=7" in shown
    assert re.search(r"  ITEMS=1 BLOCK=16 equals the baseline, at n=777 and n=7\d\d\n", shown)
    assert shown.endswith(": no errors found\n")


@pytest.mark.parametrize(
    ("domain", "advice"),
    [
        ('  domain: ["1 <= n", "n <= 100000"]\n', None),
        ('  domain: ["n in (777, 1000, 4096)"]\n', "the `domain` has no others: widen it if"),
        ("", "give a `domain` in `shapes`, so that odd sizes are checked, too"),
    ],
)
def test_a_spec_that_has_no_odd_shapes_is_told_so(tmp_path, capsys, domain, advice):
    whole = '  domain: ["1 <= n", "n <= 100000"]\n'
    assert whole in SCALE
    path = write_experiment(tmp_path, spec=SCALE.replace(whole, domain))
    validate(str(path), target=None, fast=True, device=None, as_json=False)
    said = re.search(
        "kernels are checked on the spec's own shapes alone: (.*)", capsys.readouterr().out
    )
    assert (said and said[1].startswith(advice)) if advice else said is None


def test_a_missing_bounds_check_is_a_warning_since_a_run_goes_on(tmp_path, capsys):
    path = write_experiment(
        tmp_path,
        spec=SCALE.replace("n: 777", "n: 768"),
        kernel=SCALE_KERNEL.replace("if (i < n) ", ""),
    )
    validate(str(path), target=None, fast=False, device=None, as_json=False)
    shown = capsys.readouterr().out
    told = r"warning: your kernel fails its checks at n=7\d\d: the baseline itself fails: .*"
    assert re.search(told + r"mend it \(a bounds check, say\), or narrow shapes.domain", shown)
    assert "the baseline equals the reference, at n=768\n" in shown
    assert shown.endswith(": no errors found, but a warning\n")


def test_a_configuration_without_its_tail_is_a_warning(tmp_path, capsys):
    path = write_experiment(
        tmp_path,
        spec=SCALE.replace("n: 777", "n: 768"),
        family=SCALE_FAMILY.replace("i < n", "i < n / 16 * 16"),
        template=TEMPLATE.replace("[1, 2, 4]", "[1]").replace("[16, 64]", "[16]"),
    )
    validate(str(path), target=None, fast=False, device=None, as_json=False)
    told = r"warning: ITEMS=1 BLOCK=16 fails its checks at n=7[0-57]\d: \d+ of \d+ elements of out "
    assert re.search(told + r"not written, .*; hint: launch enough blocks", capsys.readouterr().out)


def test_a_configuration_that_computes_something_else_is_a_warning(tmp_path, capsys):
    path = write_experiment(
        tmp_path,
        family=SCALE_FAMILY.replace("3.0f", "2.0f"),
        template=TEMPLATE.replace("[1, 2, 4]", "[1]").replace("[16, 64]", "[16]"),
    )
    validate(str(path), target=None, fast=False, device=None, as_json=False)
    shown = capsys.readouterr().out
    assert "warning: ITEMS=1 BLOCK=16 fails its checks at n=777: " in shown
    assert shown.endswith(": no errors found, but a warning\n")


@pytest.mark.slow
def test_what_model_and_device_lack_is_told_together(tmp_path):
    huge = SCALE.replace("tune: [", "tune: [{n: 20000000000}, ").replace(
        '"n <= 100000"', '"n <= 10**12"'
    )
    huge = huge.replace("dtype: int32", "dtype: int64")
    kernels = {"kernel": SCALE_KERNEL, "family": SCALE_FAMILY}
    wide = {name: text.replace("int n)", "long n)") for name, text in kernels.items()}
    path = write_experiment(tmp_path, spec=huge, **wide)
    path.write_text(path.read_text() + "agents: {model: nosuch/model}\n")
    with pytest.raises(SpecError, match=r"(?s)nosuch/model.*the arguments at n=20000000000 take"):
        validate(str(path), target=None, fast=True, device=None, as_json=False)


def test_a_block_that_no_device_takes_is_an_error_before_anything_is_compiled(tmp_path):
    (tmp_path / "scale.cu").write_text(KERNEL.replace("FACTOR", "2"))
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("block: 64", "block: [64, 32]"))
    with pytest.raises(SpecError, match=r"n=1000: threads per block on every device.* 2048,"):
        validate(str(path), target=None, fast=True, device=None, as_json=False)


def test_nothing_is_tried_after_the_baseline_failed(tmp_path, capsys):
    with pytest.raises(NothingValid, match="the baseline did not compile; nothing else was tried"):
        check(tmp_path)
    shown = capsys.readouterr()
    assert shown.out.count('identifier "FACTOR" is undefined') == 1
    assert "not compiled: the baseline: scale.cu(3): error" in shown.out
    assert shown.err.count("kernelwright: compiling") == 1
    assert "kernelwright: compiling 1/" in shown.err


def test_a_problem_of_several_configurations_is_told_once(tmp_path, capsys):
    template = (
        "template:\n  source: variant.cu\n  entry: scale\n  parameters: {FACTOR: [1, 2, 3]}\n"
        '  launch: {grid: "ceil_div(n, 64)", block: 64}\n'
    )
    (tmp_path / "variant.cu").write_text(KERNEL.replace("FACTOR", "FACTOR * missing"))
    with pytest.raises(NothingValid, match="3 of 4 did not compile"):
        check(tmp_path, KERNEL.replace("FACTOR", "2"), SPEC + template)
    shown = capsys.readouterr()
    assert shown.out.count('"missing" is undefined') == 1
    assert "compiled the baseline: ok" in shown.out
    assert "not compiled: FACTOR=1 and 2 more: variant.cu(3): error" in shown.out
    assert "kernelwright: compiling 4/4: FACTOR=" in shown.err


def test_a_kernel_with_nothing_to_vary_is_checked_all_the_same(tmp_path, capsys):
    twice = "launches: [{grid: n, block: 64}, {grid: n, block: 64}]"
    kernel = KERNEL.replace("* FACTOR", "").replace(
        "void scale", "void __launch_bounds__(64) scale"
    )
    spec = SPEC.replace('launch: {grid: "ceil_div(n, 64)", block: 64}', twice)
    refused = "`run` will refuse this spec: scale.cu: nothing to vary was found in scale"
    with pytest.raises(SpecError, match=refused):
        check(tmp_path, kernel, spec)
    shown = capsys.readouterr().out
    assert "compiled the baseline: ok" in shown
    assert "estimated run" not in shown
    assert "no errors found" not in shown


def test_a_configuration_over_a_limit_is_told_and_no_failure(tmp_path, capsys):
    template = (
        "template:\n  source: variant.cu\n  entry: scale\n  parameters: {KIB: [1, 400]}\n"
        '  launch: {grid: "ceil_div(n, 64)", block: 64}\n'
    )
    shared = (
        "  __shared__ float kept[KIB * 256];\n  kept[threadIdx.x] = x[0];\n  out[0] = kept[n];\n"
    )
    (tmp_path / "variant.cu").write_text(
        KERNEL.replace("  if", f"{shared}  if").replace("FACTOR", "2")
    )
    check(tmp_path, KERNEL.replace("FACTOR", "2"), SPEC + template)
    shown = capsys.readouterr().out
    assert "compiled the baseline and 1 configuration: ok" in shown
    assert "over a limit: KIB=400: " in shown
