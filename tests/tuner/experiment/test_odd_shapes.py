import re
from pathlib import Path

import pytest

from tuner.experiment.load import load_experiment
from tuner.experiment.odd_shapes import odd_shapes

EXPERIMENTS = Path("deploy/experiments")


def shapes(name: str) -> list[dict]:
    experiment = load_experiment(EXPERIMENTS / name / "opencl.yaml")
    return [shape.symbols for shape in odd_shapes(experiment)]


def test_they_are_just_below_tiny_larger_far_larger_and_alone_at_each_remainder() -> None:
    found = shapes("silu_and_mul")
    assert found[:8] == [
        {"tokens": 7, "d": 4079},
        {"tokens": 1, "d": 1},
        {"tokens": 34, "d": 6914},
        {"tokens": 58276, "d": 6},
        {"tokens": 58279, "d": 1},
        {"tokens": 6, "d": 32740},
        {"tokens": 6, "d": 32768},
        {"tokens": 1, "d": 32743},
    ]
    assert [one["tokens"] for one in found[7:] if one["d"] == 4096] == [
        *(7, 34, 36, 1, 6, 40),
        *(48, 32, 64),
    ]
    widths = [one["d"] for one in found[7:] if one["tokens"] == 16]
    tiles = [*(48, 96, 192, 384, 768, 32, 128), 257, *(1536, 6144, 12288), 15360]
    assert widths == [*(4079, 6914, 4100, 1, 6, 4104), *tiles]
    assert {width % 8 for width in widths} >= {0, 1, 2, 4, 6, 7}
    for tile in (16, 32, 64, 128, 256):
        assert any(width % (2 * tile) == tile for width in widths), "a multiple of no larger tile"
    assert found[-1] == {"tokens": 48, "d": 48}


def test_they_keep_to_the_domain_and_count_its_steps() -> None:
    folder = Path("tests/exploits/experiments/residual")
    experiment = load_experiment(folder / "experiment.yaml")
    found = [shape.symbols["n"] // 64 for shape in odd_shapes(experiment)]
    assert found == [7, 1, 34, 4100, 4103, 6, 40, 3, 12, 2, 24, 48]


def test_each_type_has_its_turn(tmp_path) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    text = text.replace("{n: 1024}, {n: 2048}", "{n: 1024, T: float16}, {n: 2048, T: float32}")
    text = text.replace("{n: 1537}", "{n: 1537, T: float32}").replace("dtype: float32", "dtype: T")
    (tmp_path / "experiment.yaml").write_text(text)
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())
    found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
    for dtype in ("float16", "float32"):
        sizes = {shape.symbols["n"] for shape in found if shape.symbols["T"] == dtype}
        assert {size % 8 for size in sizes} >= {1, 2, 4, 7}
        assert max(sizes) > 2 * 2048


def test_far_is_where_the_domain_ends_if_that_is_near(tmp_path) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    text = text.replace("{n: 1537}", "{n: 1538}")
    (tmp_path / "experiment.yaml").write_text(
        text.replace('"n <= 65536"', '"n % 2 == 0", "n <= 2054"')
    )
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())
    found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
    assert max(shape.symbols["n"] for shape in found) == 2054


def test_without_a_domain_there_are_none() -> None:
    experiment = load_experiment(Path("tests/exploits/experiments/bias/experiment.yaml"))
    assert odd_shapes(experiment) == ()


@pytest.mark.parametrize(("end", "largest"), [(1000, 768), (20, 20), (60, 60), (100, 96)])
def test_what_makes_no_argument_larger_is_not_far_larger(tmp_path, end, largest) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    text = text.replace("domain: [", f'domain: ["1 <= steps", "steps <= {end}", ')
    (tmp_path / "experiment.yaml").write_text(re.sub(r"({n: \d+)}", r"\1, steps: 3}", text))
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())
    found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
    assert max(shape.symbols["steps"] for shape in found) == largest


def test_what_is_larger_than_any_other_costs_little(tmp_path) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    huge = text.replace("n <= 65536", "n <= 9000000").replace("{n: 2048}", "{n: 8000000}")
    (tmp_path / "experiment.yaml").write_text(huge)
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())
    found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
    sizes = [shape.symbols["n"] for shape in found]
    assert 1538 in sizes, "above the largest that is not too large"
    assert max(sizes) < 1 << 20


def test_of_three_sizes_each_two_are_equal_once() -> None:
    folder = Path("tests/exploits/experiments/transpose")
    found = [shape.symbols for shape in odd_shapes(load_experiment(folder / "experiment.yaml"))]
    pairs = (("batch", "rows"), ("batch", "columns"), ("rows", "columns"))
    assert found[-4:] == [
        dict.fromkeys(("batch", "rows", "columns"), 48),
        *({"batch": 4, "rows": 24, "columns": 44} | dict.fromkeys(pair, 48) for pair in pairs),
    ]


def test_on_a_gpu_far_is_farther() -> None:
    folder = Path("tests/gpu/exploits/experiments/affine")
    found = odd_shapes(load_experiment(folder / "experiment.yaml"))
    assert max(shape.symbols["n"] for shape in found) == 2097159


GEMM = """
version: 1
name: gemm
kernel: {language: opencl, source: affine.cl, entry: affine, launch: {grid: [m], block: [1]}}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [m, n]}
  - {name: x, kind: in, dtype: float32, shape: [m, k], strides: [lda, 1]}
  - {name: y, kind: in, dtype: float32, shape: [k, n]}
shapes:
  domain: ["1 <= m", "1 <= n", "n <= 700", "1 <= k", "k <= 500", "k <= lda", "lda <= 1024",
           "1 <= b", "b <= 9999"]
  tune: [{m: 32, n: 32, k: 64, lda: 64, b: 5}]
"""


def gemm(tmp_path, third="[k, n]", end="b <= 9999") -> list[dict]:
    (tmp_path / "affine.cl").write_text(
        "kernel void affine(global float *out, global float *x, global float *y) { out[0] = x[0]; }"
    )
    (tmp_path / "experiment.yaml").write_text(
        GEMM.replace("[k, n]}", third + "}").replace("b <= 9999", end)
    )
    return [one.symbols for one in odd_shapes(load_experiment(tmp_path / "experiment.yaml"))]


def test_a_size_that_another_bounds_is_far_larger_together_with_it(tmp_path) -> None:
    assert {"m": 6, "n": 6, "k": 484, "lda": 500, "b": 6} in gemm(tmp_path)


def test_beside_the_least_of_others_a_size_exceeds_sixteen_bits(tmp_path) -> None:
    found = gemm(tmp_path, "[m, n]")
    assert max(one["m"] for one in found if one["n"] > 1) < 1 << 16, "memory bounds it"
    assert max(one["m"] for one in found if one["n"] == 1) == (1 << 16) + 39


def test_far_is_up_to_the_end_of_the_domain(tmp_path) -> None:
    found = gemm(tmp_path)
    assert {"m": 6, "n": 676, "k": 6, "lda": 6, "b": 6} in found
    assert {"m": 1, "n": 679, "k": 1, "lda": 1, "b": 1} in found, "the others as small as may be"
    assert {"m": 6, "n": 700, "k": 6, "lda": 6, "b": 6} in found, "at the very end, too"
    assert max(one["m"] for one in found) % 32 == 7, "which memory bounds, not the domain"


def test_a_fifth_size_is_far_larger_and_alone_at_some_values(tmp_path) -> None:
    found = gemm(tmp_path, "[b, k, n]")
    assert {"m": 6, "n": 6, "k": 6, "lda": 6, "b": 9988} in found
    base = {"m": 32, "n": 32, "k": 64, "lda": 64, "b": 5}
    alone = {one["b"] for one in found if one == {**base, "b": one["b"]}}
    assert len(alone) == 4, "743 would be too large"
    assert 191 in alone, "a path may begin at 128"
    assert 743 in {one["b"] for one in gemm(tmp_path)}


def test_a_product_of_two_sizes_of_an_array_exceeds_sixteen_bits(tmp_path) -> None:
    least = {"m": 1, "n": 1, "k": 1, "lda": 1, "b": 1}
    found = gemm(tmp_path)
    assert {**least, "n": 257, "k": 256, "lda": 256} in found, "the domain bounds both"
    assert not any(one["m"] == 257 and one["n"] == 256 for one in found), "m is far above"
    unlike = gemm(tmp_path, end='b <= 9999", "n <= 150')
    assert {**least, "n": 148, "k": 444, "lda": 444} in unlike


def test_a_product_exceeds_signed_numbers_where_the_domain_ends_before() -> None:
    experiment = load_experiment(Path("tests/exploits/experiments/product/experiment.yaml"))
    assert {"m": 182, "n": 181, "k": 1} in [shape.symbols for shape in odd_shapes(experiment)]


def test_a_size_is_three_of_each_large_tile_that_divides_a_tune_size(tmp_path) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())

    def sizes(*tune: int, held_out: int = 1537) -> set[int]:
        shapes = ", ".join(f"{{n: {size}}}" for size in tune)
        (tmp_path / "experiment.yaml").write_text(
            text.replace("{n: 1024}, {n: 2048}", shapes).replace("1537", str(held_out))
        )
        found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
        return {int(shape.symbols["n"]) for shape in found} & {1536, 3072, 6144, 12288}

    assert sizes(1000, 16384) == {1536, 3072, 6144, 12288}
    assert sizes(1000) == set()
    assert sizes(8192, held_out=2560) == {3072, 6144, 12288}, "five of 512 are timed"


def test_a_size_of_few_values_has_each_alone_and_its_largest_beside_small_ones(tmp_path) -> None:
    found = gemm(tmp_path, "[b, k, n]", end="b <= 7")
    base = {"m": 32, "n": 32, "k": 64, "lda": 64}
    assert {one["b"] for one in found if one == {**base, "b": one["b"]}} == {1, 2, 3, 4, 6, 7}
    assert {"m": 6, "n": 6, "k": 6, "lda": 6, "b": 7} in found
    below = {"m": 31, "n": 31, "k": 47, "lda": 47}
    assert {one["b"] for one in found if one == {**below, "b": one["b"]}} >= {1, 2, 4, 5, 6, 7}


PADDED = """
version: 1
name: padded
kernel: {language: opencl, source: affine.cl, entry: affine, launch: {grid: [n], block: [1]}}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [n]}
  - {name: x, kind: in, dtype: float32, shape: [n]}
  - {name: y, kind: in, dtype: float32, shape: [n]}
shapes:
  domain: ["1 <= n", "n <= 5000", "0 <= pad", "-n < shift", "shift < n", "steps < 9"]
  tune: [{n: 1024, pad: 2, shift: 5, steps: 3}]
"""


def test_a_size_that_may_be_0_or_less_is(tmp_path) -> None:
    gemm(tmp_path)
    (tmp_path / "experiment.yaml").write_text(PADDED)
    found = [one.symbols for one in odd_shapes(load_experiment(tmp_path / "experiment.yaml"))]
    base = {"n": 1024, "pad": 2, "shift": 5, "steps": 3}
    assert {one["pad"] for one in found if one["pad"] < 1 and one == {**base, "pad": 0}} == {0}
    shifts = {one["shift"] for one in found if one == {**base, "shift": one["shift"]}}
    assert {shift for shift in shifts if shift < 1} == {0, -1, -5, -743}
    assert {"n": 991, "pad": 0, "shift": 3, "steps": 2} in found, "beside sizes just below"
    assert all(one["pad"] >= 0 for one in found)
    assert all(one["steps"] >= 1 for one in found), "the domain does not say how few"


def test_a_size_that_an_equation_ties_to_others_follows_them() -> None:
    folder = Path("tests/exploits/experiments/tied")
    found = [one.symbols for one in odd_shapes(load_experiment(folder / "experiment.yaml"))]
    assert found[:4] == [
        {"batch": 3, "seq": 239, "tokens": 717},
        {"batch": 1, "seq": 1, "tokens": 1},
        {"batch": 34, "seq": 258, "tokens": 8772},
        {"batch": 10916, "seq": 6, "tokens": 65496},
    ]
    assert all(one["tokens"] == one["batch"] * one["seq"] for one in found)
    assert {one["seq"] % 32 for one in found if one["batch"] == 4} >= {1, 2, 4, 6, 8}


def test_larger_sizes_are_also_less_by_one_factor(tmp_path) -> None:
    assert {"m": 31, "n": 31, "k": 62, "lda": 62, "b": 5} in gemm(tmp_path)


def symbols_of(name: str) -> list[dict]:
    folder = Path(f"tests/exploits/experiments/{name}")
    return [one.symbols for one in odd_shapes(load_experiment(folder / "experiment.yaml"))]


def test_a_size_in_steps_of_another_is_small_and_just_below_with_it() -> None:
    found = symbols_of("grouped")
    assert found[:2] == [{"n": 1008, "group": 56}, {"n": 8, "group": 8}]
    assert any(one["group"] == 8 and one["n"] > 1024 and one["n"] % 16 for one in found)


def test_of_several_sizes_of_few_values_each_is_beside_the_least_of_others() -> None:
    found = symbols_of("pooled")
    assert {"n": 1024, "width": 1, "step": 3, "m": 342} in found
    assert {"n": 1024, "width": 3, "step": 1, "m": 1022} not in found, "a tune shape"
