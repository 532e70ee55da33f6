"""What is said of a space that was measured in full and raced."""

from tests.benchmarks.racing import judged
from tuner.trial import CutShort, Full, Infeasible, Measured


def full(ratio):
    return Full(median_ns=ratio * 100, mad_ns=0.0, samples=5, baseline_ns=100.0)


def short(ratio):
    return CutShort(median_ns=ratio * 100, samples=2, baseline_ns=100.0)


def test_it_says_what_was_given_up_and_whether_the_best_was():
    in_full = {n: Measured(cells=(full(1.0 + n), full(9.0 - n))) for n in range(4)}
    in_full[4] = Measured(cells=(Infeasible(reason="no"), full(1.0)))
    raced = dict(in_full)
    raced[2] = Measured(cells=(short(3.3), full(7.0)))
    raced[3] = Measured(cells=(short(4.0), full(6.0)))
    raced[4] = Measured(cells=(Infeasible(reason="no"), short(1.0)))
    first, second = judged(in_full, raced, shapes=2, places=2)["shapes"]
    assert (first["cells"], first["given_up"]) == (4, 2)
    assert round(first["error"], 3) == 0.05
    assert first["best_kept"]
    assert first["lost_of_best"] == 0
    assert not second["best_kept"]
    assert second["lost_of_best"] == 1
