"""What the live line says."""

from dataclasses import replace
from io import StringIO

from cluster.progress import Progress, display
from tests.tuner.session.driving import Run, experiment, fleet
from tuner.events import EpochOpened, TrialFinished
from tuner.session.session import Session
from tuner.simulation import Fault

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
    assert str(confirming) == f"confirm: 2/5 processes, 1 rejected; best of the search {found}"
    assert str(replace(confirming, confirmations=5)).startswith(
        "confirm: 5/5 processes, 1 rejected, now under the checkers; best"
    )
    finished = replace(SEARCHING, phase="finished", round=2)
    assert str(finished) == (f"round 2: finished: 3 trials, 1 rejected; best of the search {found}")


def progress_lines(session, facts):
    """What is shown while a session takes in facts."""
    stream = StringIO()
    with display(stream) as shown:
        for fact in facts:
            session.apply(fact)
            shown.show(Progress.of(session, 0.0))
    return stream.getvalue().splitlines()


def test_what_another_environment_measures_again_is_said_once():
    run = Run(experiment())
    run.drive(fleet())
    session = Session(run.experiment, compile_slots=1, bench_slots=1)
    kinds = [fact.kind for fact in run.facts]
    facts = run.facts[: kinds.index("search.ended")]
    assert not any("again" in line for line in progress_lines(session, facts))
    best = session.history.finalists()
    other = EpochOpened(device=run.device, environment="two")
    finished = [fact for fact in facts if isinstance(fact, TrialFinished) and fact.trial in best]
    lines = progress_lines(session, [other, *finished])
    why = f"{len(best)} measured again, since the device, its driver or a compiler is another now"
    assert sum(why in line for line in lines) == 1
    assert "again" not in lines[-1]


def test_what_is_measured_again_after_those_above_it_were_refused_is_said():
    undisturbed = Run(experiment(trials=30, top=2))
    before = undisturbed.drive(fleet()).history
    last = next(n for n in before.ranking() if not before.trials[n].outcome.complete)
    better = before.ranking()[: before.ranking().index(last)]
    run = Run(experiment(trials=30, top=2))
    run.drive(fleet(faults=dict.fromkeys(better, Fault.WRONG_LATER)))
    session = Session(run.experiment, compile_slots=1, bench_slots=1)
    lines = progress_lines(session, run.facts)
    assert any("1 measured again, since those that led them were refused" in one for one in lines)
