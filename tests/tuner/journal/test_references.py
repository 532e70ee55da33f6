"""Facts that do not fit the experiment are damage; what a run journals always fits."""

import pytest

from cluster.commands.report import report
from cluster.commands.results import status
from tests.tuner.engine.driving import GPU, Run, experiment, fleet
from tests.tuner.results.runs import full
from tuner.errors import EnvironmentProblem
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    IncumbentEntered,
    Profile,
    RunFinished,
    Sample,
    SearchEnded,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
)
from tuner.journal.file import Journal
from tuner.journal.references import check_references
from tuner.run_directory import JOURNAL, RunDirectory
from tuner.trial import Code, Configuration, Measured, Rejected, Stage

EXPERIMENT = experiment()
CELL = full(500.0, 1000.0)
FAILED = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="")
OPENED = EpochOpened(device=GPU, environment="one")


def sampled(**fields):
    sample = {"trial": 0, "shape": 0, "cache": "cold", "median_ns": 1.0, **fields}
    return ConfirmationSampled(process=0, samples=(Sample(**sample),))


@pytest.mark.parametrize(
    ("fact", "complaint"),
    [
        (BaselinePrepared(result=(CELL,) * 2), "2 cells of the baseline, .* has 3 shapes"),
        (
            TrialFinished(trial=0, outcome=Measured(cells=(CELL,) * 3)),
            "3 cells of trial 0, .* has 2 tune shapes",
        ),
        (TrialProposed(trial=7, configuration=Configuration.of({"x": 2})), "7 where 1 is due"),
        (TrialFinished(trial=4, outcome=FAILED), "trial 4 was never proposed"),
        (TrialFinished(trial=0, outcome=FAILED, same_as=1), "no trial 1"),
        (TrialFinished(trial=0, outcome=FAILED, same_as=-1), "in its place that is none"),
        (sampled(trial=1), "no trial 1"),
        (sampled(trial=-2), "no trial -2"),
        (sampled(shape=3), "no shape 3"),
        (sampled(shape=-1), "no shape -1"),
        (ConfirmationSampled(process=0, samples=(), failed=((7, FAILED),)), "no trial 7"),
        (WinnersExamined(trials=(5,)), "no trial 5"),
        (
            WinnersExamined(trials=(0,), profiles=(Profile(trial=0, shape=9, counters=()),)),
            "no shape 9",
        ),
    ],
)
def test_what_does_not_fit_the_experiment_names_the_journal_and_the_line(tmp_path, fact, complaint):
    path = tmp_path / "run"
    directory = RunDirectory.create(path, EXPERIMENT, "")
    proposed = TrialProposed(trial=0, configuration=Configuration.of({"x": 1}))
    with Journal(path / JOURNAL) as journal:
        journal.append(Entry(OPENED), Entry(proposed), Entry(fact))
    named = rf"run/journal\.jsonl:4: the journal is damaged here \(.*{complaint}"
    for use in (
        directory.journal,
        lambda: report(path, as_json=False),
        lambda: status(path, as_json=True),
    ):
        with pytest.raises(EnvironmentProblem, match=named):
            use()
    directory.close()


def test_what_a_run_with_an_incumbent_journals_fits(tmp_path):
    entered = IncumbentEntered(
        template=EXPERIMENT.template, configuration=Configuration.of({"x": 3})
    )
    run = Run(EXPERIMENT, incumbents=(entered,))
    run.drive(fleet())
    check_references(tmp_path, EXPERIMENT, run.entries)
    samples = [
        sample.trial
        for entry in run.entries
        if isinstance(entry.fact, ConfirmationSampled)
        for sample in entry.fact.samples
    ]
    assert -2 in samples


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ((BaselinePrepared(result=FAILED),), "2: .*baseline.prepared before the first epoch"),
        ((SearchEnded(reason="trials"),) * 2, "3: .*a second search.ended"),
        ((OPENED, RunFinished(), OPENED, RunFinished()), "5: .*a second run.finished"),
    ],
)
def test_what_comes_before_an_epoch_or_ends_twice_is_named(tmp_path, facts, complaint):
    with pytest.raises(EnvironmentProblem, match=complaint):
        check_references(tmp_path / JOURNAL, EXPERIMENT, [Entry(fact) for fact in facts])
