import json
from pathlib import Path

from pydantic import TypeAdapter

from agents.planning import Variant
from agents.variants import write_variants
from agents.verdict import VERDICTS, Verdict
from tests.agents.briefs import FAMILY, SUGGESTION, twice
from tuner.experiment.model import Template
from tuner.results.statistics import Comparison
from tuner.trial import Configuration

VERDICT = Verdict(
    trials=3,
    seconds=1.5,
    configuration=Configuration.of({"VEC": 4}),
    speedup=1.25,
    low=1.2,
    high=1.3,
    gain=Comparison(speedup=1.1, low=1.05, high=1.15, verdict="faster", processes=5),
    portfolio_gain=None,
    incumbents=(),
    baseline_us=(1.0, None),
    best_us=(0.8, None),
    observations=(),
    advice=("try more",),
)


def test_a_variant_can_be_read_again(tmp_path: Path) -> None:
    template = twice().template
    assert template is not None
    variant = Variant(
        round=2, template=template, parent="0" * 16, suggestion=SUGGESTION, verdict=VERDICT
    )
    for _ in range(2):
        write_variants(tmp_path, (variant,))
    (folder,) = tmp_path.iterdir()
    assert folder.name == variant.digest
    assert sorted(path.name for path in folder.iterdir()) == [
        "about.json",
        "template.json",
        "twice.cl",
    ]
    assert (folder / "twice.cl").read_text() == FAMILY
    read = TypeAdapter(Template).validate_json((folder / "template.json").read_text())
    assert read == template
    about = json.loads((folder / "about.json").read_text())
    assert (about["round"], about["parent"]) == (2, "0" * 16)
    assert VERDICTS.validate_json(json.dumps(about["verdict"])) == VERDICT
