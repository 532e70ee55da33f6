"""What the live line says."""

from dataclasses import replace

from cluster.progress import Progress

SEARCHING = Progress(
    phase="search",
    proposed=4,
    finished=3,
    rejected=1,
    trials=10,
    compiling=0,
    benching=1,
    searched=6.2,
    seconds=20.0,
    speedup=2.97,
    leader="TC=1 TR=64",
    confirmations=2,
    processes=5,
)


def test_what_only_the_search_saw_is_not_told_as_the_result():
    found = "2.97× with TC=1 TR=64"
    assert str(SEARCHING) == f"search: 3/10 trials, 1 rejected, 6/20 s; best {found}"
    confirming = replace(SEARCHING, phase="confirm")
    assert str(confirming) == f"confirm: 2/5 processes; best of the search {found}"
    assert str(replace(confirming, confirmations=5)).startswith(
        "confirm: 5/5 processes, now under the checkers; best"
    )
    finished = replace(SEARCHING, phase="finished", round=2)
    assert str(finished) == (f"round 2: finished: 3 trials, 1 rejected; best of the search {found}")
