from pathlib import Path

from tuner.spec.load import load_experiment
from tuner.spec.odd import odd_shapes

EXPERIMENTS = Path("deploy/experiments")


def shapes(name: str) -> list[dict]:
    experiment = load_experiment(EXPERIMENTS / name / "opencl.yaml")
    return [shape.symbols for shape in odd_shapes(experiment)]


def test_they_are_small_prime_and_mixed() -> None:
    found = shapes("silu_and_mul")
    assert found == [
        {"tokens": 13, "d": 4093},
        {"tokens": 1, "d": 1},
        {"tokens": 13, "d": 1},
    ]


def test_they_keep_to_the_domain(tmp_path) -> None:
    folder = Path("tests/exploits/experiments/residual")
    experiment = load_experiment(folder / "experiment.yaml")
    found = [shape.symbols["n"] for shape in odd_shapes(experiment)]
    assert found == [960, 64]


def test_without_a_domain_there_are_none() -> None:
    experiment = load_experiment(Path("tests/exploits/experiments/bias/experiment.yaml"))
    assert odd_shapes(experiment) == ()
