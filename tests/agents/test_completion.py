"""The completion role alone: what is asked, what is refused, repairs, records and budgets."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agents.completion import (
    CompletionTask,
    ReplyPending,
    complete_spec,
    completed_experiment,
    completion_asker,
    open_guesses,
)
from agents.llm.port import ModelUnavailable, Reply, Waiting
from agents.llm.replay import Header, Replay, Transcript
from agents.replies import GeneratedCompletion
from agents.settings import AgentSettings
from agents.step_journal import StepFiles, Steps, recorded_exchanges
from agents.verdict import Refused
from tests.tuner.experiment import specs
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import load_experiment

PYTHON = "def scale(x, factor):\n    return {'out': factor * x}\n"


def answer(python=PYTHON, **fields):
    given = {
        "reference": "scale",
        "domain": ["1 <= n", "n <= 65536"],
        "ranges": {},
        "tolerances": {},
        "rationale": "scales",
    } | fields
    return f"```json\n{json.dumps(given)}\n```\n```python\n{python}```\n"


class Model:
    """Gives these replies in order."""

    def __init__(self, *texts):
        self.texts, self.asked = list(texts), []

    async def ready(self):
        pass

    async def price(self, request):
        return 0.0

    async def complete(self, request):
        self.asked.append(request)
        text = self.texts[len(self.asked) - 1]
        return Waiting(where="box") if text is None else Reply(text=text)


@pytest.fixture
def experiment(tmp_path):
    spec = specs.SPEC.replace("reference: reference.py:scale\n", "")
    spec = spec.replace(", range: [-3, 3]", "").replace("template: template.yaml\n", "")
    return load_experiment(
        specs.write(tmp_path, spec.replace(", tolerance: {rtol: 1e-5, atol: 1e-5}", ""))
    )


def run(experiment, model, folder, tried=lambda attempt, completed: None, **limits):
    task = CompletionTask(
        experiment=experiment,
        file="reference.py",
        facts=("x before the launch: from -1 to 1",),
        guesses=("domain: [] # guess: `x`",),
    )

    async def try_out(attempt, completed):
        return tried(attempt, completed)

    steps = Steps(StepFiles(folder / "llm"), lambda: 0.0)
    ask = completion_asker(model, experiment, steps, AgentSettings(**limits))
    return asyncio.run(complete_spec(task, ask, try_out))


def test_a_good_answer_completes_the_experiment(experiment, tmp_path):
    model = Model(answer(ranges={"x": [-2, 2]}, tolerances={"out": {"rtol": 1e-5, "atol": 0}}))
    seen = []
    found = run(experiment, model, tmp_path, lambda attempt, completed: seen.append(completed))
    assert isinstance(found, GeneratedCompletion)
    (completed,) = seen
    assert completed == completed_experiment(experiment, found, "reference.py")
    assert completed.reference.text == PYTHON
    assert completed.arguments[1].range == (-2, 2)
    assert completed.arguments[0].tolerance.rtol == 1e-5
    (request,) = model.asked
    text = request.messages[1].content
    assert experiment.kernel.source.text.strip() in text
    assert "x before the launch: from -1 to 1" in text
    assert "domain: [] # guess:" in text
    assert "1000" in text
    assert "777" not in text  # held out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (answer("import os\ndef scale(x): return x\n"), "import os is not allowed"),
        (answer(ranges={"out": [0, 1]}), "ranges: out is no input"),
        (answer(ranges={"x": [1, 0]}), "ranges: x: 1.0 is above 0.0"),
        (answer(tolerances={"x": {"rtol": 0, "atol": 0}}), "tolerances: x is no output"),
        (answer(tolerances={"out": {"rtol": 0.5, "atol": 0}}), "may have at most"),
        (answer(domain=["n > 5000"]), "shapes.tune.0"),
        (answer(domain=["m > 1"]), "m"),
        (answer(reference="other"), "no function 'other' in reference.py"),
        (answer("def scale(y): return y\n"), "wants 'y'"),
        ("no blocks", "has no JSON object"),
        (answer(more=1), "more"),
    ],
)
def test_a_wrong_answer_is_repaired(experiment, tmp_path, wrong, words):
    model = Model(wrong, answer())
    found = run(experiment, model, tmp_path)
    assert isinstance(found, GeneratedCompletion)
    assert len(model.asked) == 2
    assert words in model.asked[1].messages[-1].content


def test_a_reference_that_differs_is_repaired_and_at_last_refused(experiment, tmp_path):
    model = Model(*[answer()] * 4)
    found = run(experiment, model, tmp_path, lambda attempt, completed: f"differs {attempt}")
    assert found == Refused(by="The comparison with the kernel's results", detail="differs 3")
    assert len(model.asked) == 4
    assert "differs 2" in model.asked[3].messages[-1].content


def test_calls_are_recorded_and_replayed(experiment, tmp_path):
    found = run(experiment, Model(answer(reference="other"), answer()), tmp_path)
    assert run(experiment, Model(), tmp_path) == found  # nothing is asked again
    exchanges = recorded_exchanges(tmp_path / "llm")
    assert [str(one.step) for one in exchanges] == ["r0-d0-completion-a0", "r0-d0-completion-a1"]
    header = Header(
        experiment=experiment.name, kernel=kernel_digest(experiment.kernel), made="by a test"
    )
    replay = Replay(Transcript(header=header, exchanges=exchanges))
    assert run(experiment, replay, tmp_path / "again") == found
    other = replace(experiment, name="other")
    with pytest.raises(ModelUnavailable, match="was recorded for"):
        run(other, replay, tmp_path / "other")


def test_no_budget_and_no_reply(experiment, tmp_path):
    with pytest.raises(ModelUnavailable, match="covers no further call"):
        run(experiment, Model(answer()), tmp_path, max_calls=0)
    with pytest.raises(ReplyPending, match="no reply yet to box"):
        run(experiment, Model(None), tmp_path)


def test_guesses_are_shown_by_line():
    assert open_guesses("a\n  b # guess\nc", (2,)) == ("b # guess",)


def test_a_long_source_is_shortened_to_the_budget(experiment, tmp_path):
    long = replace(
        experiment.kernel.source, text=experiment.kernel.source.text + "// filler\n" * 8000
    )
    large = replace(experiment, kernel=replace(experiment.kernel, source=long))
    model = Model(answer())
    run(large, model, Path(tmp_path))
    assert "characters left out" in model.asked[0].messages[1].content
