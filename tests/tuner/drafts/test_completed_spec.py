"""Completed fields written into the text of a spec, whatever its layout."""

import pytest

from tuner.drafts.completed_spec import CompletedFields, completed_text
from tuner.drafts.draft_spec import unread_guesses
from tuner.experiment.contents import Tolerance
from tuner.experiment.yaml_document import parse

FIELDS = CompletedFields(
    reference="s.completed.py:scale",
    domain=["1 <= n", "n % 4 == 0"],
    ranges={"x": (-1.0, 2.5)},
    tolerances={"out": Tolerance(rtol=1e-4, atol=1e-6)},
    verified="the captured results of 3 shapes",
)
FLOW = """\
# about it
name: scale
arguments:
  - {name: out, kind: out, shape: ["n, }"]}    # guess: by what changed (low)
  - {name: x, kind: in,
     shape: [n], values: {file: "x}.npy"}}   # a comment }
shapes:
  domain: ["n == 4"]    # guess: only what was captured (low)
  # kept
  tune: [{n: 4}]

# reference: reference.py:scale    # NumPy
#                        # more of it
search: {trials: 3}
"""
BLOCK = """\
name: scale
arguments:
  - name: out
    kind: out
  - name: x
shapes:
  domain:
    - n == 4
    - "n < 9"
  tune: [{n: 4}]
reference: old.py:f
"""
LATER = """\
name: scale
shapes:
  # none yet
  tune: [{n: 4}]
arguments: [{name: out}, {name: x, range: [0, 1]}]
"""


@pytest.mark.parametrize("text", [FLOW, BLOCK, LATER])
def test_the_fields_are_there_and_the_rest_is_kept(text):
    before, after = parse(text, "a").data, parse(completed_text(text, FIELDS), "b").data
    assert after["reference"] == "s.completed.py:scale"
    assert after["shapes"] == {"domain": ["1 <= n", "n % 4 == 0"], "tune": [{"n": 4}]}
    out, x = after["arguments"]
    assert out == before["arguments"][0] | {"tolerance": {"rtol": 1e-4, "atol": 1e-6}}
    assert x == {"range": [-1.0, 2.5]} | before["arguments"][1]
    left = {"reference", "shapes", "arguments"}
    assert {k: v for k, v in after.items() if k not in left} == {
        k: v for k, v in before.items() if k not in left
    }


def test_comments_are_kept_and_what_is_not_verified_is_marked():
    text = completed_text(FLOW, FIELDS)
    lines = text.splitlines()
    assert lines[0] == "# about it"
    assert "  # kept" in lines
    assert "# NumPy" not in text
    assert "more of it" not in text
    assert "by what changed (low); tolerance by a model, not verified (low)" in text
    assert "reference: s.completed.py:scale    # verified: equal to the captured results" in text
    assert len(unread_guesses(text)) == 3
    unverified = completed_text(FLOW, CompletedFields(**{**_plain(FIELDS), "verified": ""}))
    assert len(unread_guesses(unverified)) == 4


def _plain(fields):
    return {name: getattr(fields, name) for name in fields.__dataclass_fields__}
