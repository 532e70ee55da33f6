"""``complete``: recorded answers, tried on captured results and beside the baseline on PoCL."""

import json

import pytest

from agents.llm.port import ModelUnavailable, Reply, Role, StepKey
from agents.llm.replay import Exchange, Header, read_transcript, write_transcript
from cluster.commands.complete import complete
from tests.cluster.test_captures import captured, draft, no_device  # noqa: F401
from tests.tuner.experiment import specs
from tuner.drafts.draft_spec import unread_guesses
from tuner.errors import NothingValid, SpecError
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import load_experiment

DOUBLE = "def scale(x):\n    return {'out': 2 * x}\n"
TRIPLE = "def scale(x):\n    return {'out': 3 * x}\n"


def answer(python, **fields):
    given = {"reference": "scale", "domain": ["1 <= n"], "rationale": "scales"} | fields
    return f"```json\n{json.dumps(given)}\n```\n```python\n{python}```\n"


def recorded(spec, *texts):
    """A transcript beside the spec with these answers."""
    experiment = load_experiment(spec)
    header = Header(
        experiment=experiment.name, kernel=kernel_digest(experiment.kernel), made="by a test"
    )
    exchanges = [
        Exchange(
            step=StepKey(round=0, draft=0, role=Role.COMPLETION, attempt=attempt),
            request="0" * 64,
            reply=Reply(text=text),
        )
        for attempt, text in enumerate(texts)
    ]
    path = spec.with_name(f"completion_{experiment.kernel.language}.jsonl")
    write_transcript(path, header, exchanges)


def completed(spec, **more):
    given = {"model": "replay", "allow_endpoint": None, "output": None, "device": None}
    given |= {"exit_when_waiting": False}
    complete(spec, **given | more)


@pytest.fixture
def drafted(captured, tmp_path):  # noqa: F811
    draft(captured, tmp_path / "scale.cu")
    return captured / "spec.yaml"


def test_a_reference_is_compared_with_what_the_application_computed(drafted, capsys):
    before = drafted.read_text()
    ranges = answer(DOUBLE, ranges={"x": [0, 10]})
    recorded(drafted, answer(TRIPLE), ranges, answer(DOUBLE, ranges={"x": [0, 1000]}))
    completed(drafted)
    assert drafted.read_text() == before
    told = capsys.readouterr().err
    assert "its reference equals the captured results of 2 shapes" in told
    spec = drafted.with_name("spec.completed.yaml")
    experiment = load_experiment(spec)
    assert experiment.reference.text == DOUBLE
    assert experiment.arguments[1].range == (0, 1000)
    assert [limit.text for limit in experiment.shapes.domain] == ["1 <= n"]
    assert "# verified: equal to the captured results of 2 shapes" in spec.read_text()
    assert unread_guesses(spec.read_text())
    with pytest.raises(SpecError, match=r"spec\.completed\.yaml exists already"):
        completed(drafted)


def test_what_never_fits_is_refused_and_nothing_is_written(drafted):
    recorded(drafted, *[answer(TRIPLE)] * 4)
    with pytest.raises(NothingValid, match=r"n=300: the kernel made .* the reference makes"):
        completed(drafted)
    assert not drafted.with_name("spec.completed.yaml").exists()
    assert not drafted.with_name("spec.completed.py").exists()


def test_without_a_model_the_guesses_stay(drafted):
    with pytest.raises(ModelUnavailable, match="no model is named: give --model; guesses stay"):
        completed(drafted, model=None)
    with pytest.raises(ModelUnavailable, match="no transcript to replay"):
        completed(drafted)
    recorded(drafted, answer(DOUBLE))
    with pytest.raises(SpecError, match="must lie beside"):
        completed(drafted, output=drafted.parent.parent / "other.yaml")


def test_a_reference_is_compared_with_the_baseline_on_a_device(tmp_path, capsys):
    spec = specs.SPEC.replace("reference: reference.py:scale\n", "reference: reference.py:make\n")
    spec = spec.replace("template: template.yaml\n", "").replace(
        "reference: reference.py:make\n", ""
    )
    path = specs.write(tmp_path, spec)
    good = "def scale(x, factor):\n    return {'out': factor * x}\n"
    limits = {"domain": ["1 <= n", "n <= 65536"]}
    recorded(path, answer(DOUBLE, **limits), answer(good, **limits))
    completed(path)
    told = capsys.readouterr().err
    assert "trying completion 2" in told
    assert "its reference equals the baseline on" in told
    assert load_experiment(path.with_name("spec.completed.yaml")).reference.text == good
    kept = read_transcript(path.with_name("spec.complete") / "transcript.jsonl")
    assert len(kept.exchanges) == 2
