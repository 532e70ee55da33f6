import re
from pathlib import Path

from tuner.experiment.load import load_experiment
from tuner.experiment.odd_shapes import odd_shapes

EXPERIMENTS = Path("deploy/experiments")


def shapes(name: str) -> list[dict]:
    experiment = load_experiment(EXPERIMENTS / name / "opencl.yaml")
    return [shape.symbols for shape in odd_shapes(experiment)]


def test_they_are_small_prime_mixed_larger_and_one_size_far_larger() -> None:
    found = shapes("silu_and_mul")
    assert found == [
        {"tokens": 13, "d": 4093},
        {"tokens": 1, "d": 1},
        {"tokens": 13, "d": 1},
        {"tokens": 37, "d": 6917},
        {"tokens": 33792, "d": 7},
        {"tokens": 7, "d": 27648},
    ]


def test_they_keep_to_the_domain(tmp_path) -> None:
    folder = Path("tests/exploits/experiments/residual")
    experiment = load_experiment(folder / "experiment.yaml")
    found = [shape.symbols["n"] for shape in odd_shapes(experiment)]
    assert found == [960, 64, 1088, 262144]


def test_without_a_domain_there_are_none() -> None:
    experiment = load_experiment(Path("tests/exploits/experiments/bias/experiment.yaml"))
    assert odd_shapes(experiment) == ()


def test_what_makes_no_argument_larger_is_not_far_larger(tmp_path) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    text = text.replace("domain: [", 'domain: ["1 <= steps", ')
    (tmp_path / "experiment.yaml").write_text(re.sub(r"({n: \d+)}", r"\1, steps: 3}", text))
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())
    found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
    assert max(shape.symbols["steps"] for shape in found) == 7


def test_what_is_larger_than_any_other_costs_little(tmp_path) -> None:
    text = Path("tests/exploits/experiments/affine/experiment.yaml").read_text()
    huge = text.replace("n <= 65536", "n <= 9000000").replace("{n: 2048}", "{n: 8000000}")
    (tmp_path / "experiment.yaml").write_text(huge)
    for name in ("affine.cl", "reference.py"):
        (tmp_path / name).write_text(Path(f"tests/exploits/experiments/affine/{name}").read_text())
    found = odd_shapes(load_experiment(tmp_path / "experiment.yaml"))
    assert found[-1].symbols == {"n": 1543}, "above the largest that is not too large"
