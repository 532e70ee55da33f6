import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agents.generation.admission import refusal, usable_seeds
from agents.llm.port import Reply
from agents.replies import (
    GeneratedTemplate,
    Suggestion,
    Unusable,
    read_suggestion,
    read_template,
)
from tests.agents.devices import CPU
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment
from tuner.space.feasible import feasible_set

FOLDER = Path(__file__).parents[2] / "deploy" / "experiments" / "silu_and_mul"
EXPERIMENT = replace(load_experiment(FOLDER / "opencl.yaml"), template=None)
SOURCE = (FOLDER / "template_opencl.cl").read_text()
SUGGESTION = {
    "bottleneck": "scalar loads",
    "strategy": "vectors",
    "expected_effect": "2x",
    "refuted_by": "no change with VEC",
}


def draft() -> dict[str, object]:
    written = yaml.safe_load((FOLDER / "template_opencl.yaml").read_text())
    return {
        "entry": written["entry"],
        "parameters": {
            name: {"values": values, "reason": "worth trying"}
            for name, values in written["parameters"].items()
        },
        "constraints": [
            {"expression": text, "reason": "else it is pointless"}
            for text in written["constraints"]
        ],
        "launch": written["launch"],
        "rationale": written["rationale"],
        "seeds": [{"VEC": 8, "BLOCK": 4, "ITEMS": 2, "WALK": "chunk", "EXP": "exact"}],
    }


def reply_text(fields: object, source: str = SOURCE) -> str:
    body = json.dumps(fields, indent=1)
    return f"Vectors help.\n\n```json\n{body}\n```\n\n```c\n{source}```\n"


def read(text: str, **fields: object) -> GeneratedTemplate | Unusable:
    return read_template(Reply(text=text, **fields), "silu_and_mul.cl")  # type: ignore[arg-type]


def code(text: str, **fields: object) -> str:
    found = read(text, **fields)
    assert isinstance(found, Unusable), found
    return found.code


def test_a_good_template_is_read_and_admitted() -> None:
    found = read(reply_text(draft()))
    assert isinstance(found, GeneratedTemplate)
    assert found.template.source.text == SOURCE
    assert found.template.parameters["VEC"] == (1, 2, 4, 8)
    assert refusal(EXPERIMENT, found.template) is None
    assert len(usable_seeds(found.template, found.seeds)) == 1


@pytest.mark.parametrize(
    "text",
    [
        reply_text(draft()).replace("\n", "\r\n"),
        reply_text(draft()).replace("```c\n", "```c++\n"),
        reply_text(draft()).replace("```c\n", "````opencl\n") + "````",
        reply_text(draft()).replace("```c\n", "```\n"),
        reply_text(draft()).replace("```json", "```"),
        reply_text(draft()).replace("```c\n", "```cuh\n"),
        reply_text(draft()).replace("```c\n", "```hpp\n"),
        "\ufeff" + reply_text(draft()),
        f"A plan:\n```c\nint x;\n```\nand {{}}\n</think>\n{reply_text(draft())}",
    ],
    ids=[
        *("crlf", "c++", "long fence", "untagged source", "untagged object", "cuh", "hpp"),
        *("byte order mark", "reasoning without its beginning"),
    ],
)
def test_ways_to_fence_it(text: str) -> None:
    found = read(text)
    assert isinstance(found, GeneratedTemplate)
    assert found.template.source.text.removesuffix("```\n") == SOURCE


def test_one_that_says_stop_need_say_no_more() -> None:
    text = json.dumps(SUGGESTION | {"expected_effect": "", "stop": True})
    found = read_suggestion(Reply(text=text))
    assert isinstance(found, Suggestion)
    found = read_suggestion(Reply(text=json.dumps(SUGGESTION | {"expected_effect": ""})))
    assert isinstance(found, Unusable)
    assert "expected_effect must not be empty unless stop is true" in found.detail


def test_a_suggestion_is_read_from_a_block_or_bare() -> None:
    body = json.dumps(SUGGESTION)
    expected = Suggestion(**SUGGESTION)  # type: ignore[arg-type]
    for text in (
        body,
        f"Well.\n```json\n{body}\n```",
        f"```\n{body}\n```",
        f"Here is my suggestion:\n{body}",
        f"\ufeff{body}",
        f"<think>{body}</think>\n\n{body}",
    ):
        assert read_suggestion(Reply(text=text)) == expected


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("I cannot help.", "no_object", "```json"),
        ("", "no_object", "```json"),
        ('```json\n{"a": 1', "truncated", "line 1 is not closed"),
        ('{"bottleneck": "x", ', "truncated", "broken at line 1"),
        ('{"bottleneck": x}', "malformed", "column 16"),
        ('{"a": 1, "a": 2}', "malformed", "'a' occurs twice"),
        ('{"a": NaN}', "malformed", "NaN is not JSON"),
        ('{"a": ' + "[" * 100_000, "malformed", "nested too deeply"),
        ('{"a": 1}', "schema", "a: Unexpected keyword argument"),
        (json.dumps(SUGGESTION | {"extra": 1}), "schema", "extra"),
        (json.dumps(SUGGESTION | {"strategy": 7}), "schema", "strategy"),
        (json.dumps(SUGGESTION | {"strategy": "x" * 5000}), "schema", "strategy"),
        ("[1]", "no_object", "no JSON object"),
        ("```json\n{}\n```\n```json\n{}\n```", "several", "2 JSON objects"),
    ],
)
def test_bad_replies_are_refused_in_words_to_quote(text: str, code: str, words: str) -> None:
    found = read_suggestion(Reply(text=text))
    assert isinstance(found, Unusable)
    assert found.code == code
    assert words in found.detail
    assert len(found.detail) < 4_000


def test_a_cut_reply_is_told_from_a_wrong_one_by_its_content_too() -> None:
    whole = reply_text(draft())
    assert code(whole[: whole.index("```c") + 200]) == "truncated"
    assert code(whole[: whole.index("constraints")], finish_reason="length") == "truncated"
    assert code("Let me think", finish_reason="length") == "truncated"
    middle = SOURCE[: SOURCE.index("for (int item")]
    assert code(reply_text(draft(), middle)) == "truncated"
    assert code(reply_text(draft(), SOURCE + "/* and")) == "truncated"
    assert code(reply_text(draft(), SOURCE.replace("#endif", "", 1))) == "truncated"


def test_one_source_and_no_other() -> None:
    assert code(reply_text(draft()) + "```c\nint x;\n```\n") == "several"
    assert code(reply_text(draft(), "")) == "no_source"
    assert code(reply_text(draft()).replace("```c\n", "```python\n")) == "no_source"
    assert code(reply_text(draft(), "\0" + SOURCE)) == "malformed"


@pytest.mark.parametrize("key", ["reference", "arguments", "shapes", "kernel", "cost", "measure"])
def test_a_reply_with_a_template_says_nothing_of_how_it_is_judged(key: str) -> None:
    assert code(reply_text(draft() | {key: "reference.py:easy"})) == "schema"


def edited(**changes: object) -> dict[str, object]:
    return draft() | changes


BAD: dict[str, tuple[Callable[[], tuple[object, str]], str]] = {
    "unused parameter": (
        lambda: (
            edited(
                parameters={
                    **draft()["parameters"],  # type: ignore[dict-item]
                    "SPARE": {"values": [1, 2], "reason": "?"},
                }
            ),
            SOURCE,
        ),
        "SPARE",
    ),
    "unknown name": (
        lambda: (edited(constraints=[{"expression": "VECS > 1", "reason": "?"}]), SOURCE),
        "VECS",
    ),
    "code": (
        lambda: (edited(constraints=[{"expression": "__import__('os')", "reason": "?"}]), SOURCE),
        "constraints",
    ),
    "no launch": (
        lambda: ({key: value for key, value in draft().items() if key != "launch"}, SOURCE),
        "launch",
    ),
    "mixed values": (
        lambda: (
            edited(
                parameters={
                    **draft()["parameters"],  # type: ignore[dict-item]
                    "VEC": {"values": [1, "two"], "reason": "?"},
                }
            ),
            SOURCE,
        ),
        "VEC",
    ),
    "other entry": (lambda: (edited(entry="silu"), SOURCE), "silu"),
    "option off the list": (lambda: (edited(options=["-DFOO=1", "-w"]), SOURCE), "options"),
    "argument dropped": (lambda: (draft(), SOURCE.replace(", int d)", ")")), "parameters"),
    "type changed": (
        lambda: (draft(), SOURCE.replace("half *restrict out", "float *restrict out")),
        "out",
    ),
    "printing": (
        lambda: (draft(), SOURCE.replace("size_t row", 'printf("0 ns"); size_t row')),
        "printf",
    ),
    "parameter redefined": (lambda: (draft(), "#define VEC 1\n" + SOURCE), "VEC"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_template_is_refused_for_its_reason(name: str) -> None:
    make, word = BAD[name]
    fields, source = make()
    found = read(reply_text(fields, source))
    reason = found.detail if isinstance(found, Unusable) else refusal(EXPERIMENT, found.template)
    assert reason is not None
    assert word in reason


def test_the_plain_kernel_is_no_template() -> None:
    plain = "// a new comment\n" + EXPERIMENT.kernel.source.text.replace("  ", "\t")
    launch = {"grid": ["ceil_div(d, 64)", "tokens"], "block": [64]}
    found = read(reply_text(edited(launch=launch), plain))
    assert isinstance(found, GeneratedTemplate)
    assert refusal(EXPERIMENT, found.template) == "this is the plain kernel, unchanged"


def test_seeds_outside_the_space_are_dropped() -> None:
    found = read(reply_text(edited(seeds=[{"VEC": 3}, {"VEC": True}, draft()["seeds"][0]])))  # type: ignore[index]
    assert isinstance(found, GeneratedTemplate)
    assert len(usable_seeds(found.template, found.seeds)) == 1


def mutate(text: str, dice: random.Random) -> str:
    """One random edit: of characters, lines, tokens, fences or the ending."""
    at = dice.randrange(len(text) + 1)
    lines = text.split("\n")
    row = dice.randrange(len(lines))
    words = re.findall(r"\w+|\W", text)
    junk = dice.choice(['"', "{", "}", "`", "```", "\n", "\\", "\0", "\ud800", "é", "(", ",", "0"])
    kind = dice.randrange(8)
    if kind == 0:
        return text[:at] + junk + text[at:]
    if kind == 1:
        return text[:at] + text[at + dice.randrange(1, 9) :]
    if kind == 2:
        return "\n".join(lines[:row] + lines[row + 1 :])
    if kind == 3:
        return "\n".join([*lines[:row], lines[row], *lines[row:]])
    if kind == 4:
        return text[:at]
    if kind == 5:
        one, two = dice.randrange(len(words)), dice.randrange(len(words))
        words[one], words[two] = words[two], words[one]
        return "".join(words)
    if kind == 6:
        words[dice.randrange(len(words))] = dice.choice(["-1", "true", "null", "1e9", "VEC", "[]"])
        return "".join(words)
    return text.replace(dice.choice(["```", "\n", "VEC", "16", "}"]), junk, dice.randrange(1, 3))


@pytest.mark.parametrize("replies", [300, pytest.param(1_200, marks=pytest.mark.slow)])
def test_mutated_replies_crash_nothing_and_smuggle_nothing(replies: int) -> None:
    whole = reply_text(draft())
    accepted = 0
    for seed in range(replies):
        dice = random.Random(seed)
        text = whole
        for _ in range(dice.randrange(1, 4)):
            text = mutate(text, dice) or whole
        read_suggestion(Reply(text=text))
        found = read(text, finish_reason=dice.choice(["stop", "length", "other"]))
        if isinstance(found, Unusable):
            assert found.detail
            continue
        if refusal(EXPERIMENT, found.template) is not None:
            continue
        accepted += 1
        template = found.template
        assert template.launch is not None
        sizes = (*template.launch.grid, *template.launch.block, *template.constraints)
        used = set(re.findall(r"\w+", template.source.text)).union(*(size.names for size in sizes))
        assert used.issuperset(template.parameters)
        kernel = re.search(r"\bsilu_and_mul\b([^{]*)", template.source.text)
        assert kernel is not None
        assert kernel[1].count(",") == len(EXPERIMENT.arguments) - 1
        assert template.source.text.encode()
        try:
            space = feasible_set(EXPERIMENT, template, CPU)
        except SpecError:
            continue
        assert len(space) > 0
    assert accepted > replies / 24
