import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.brief import (
    BYTES_PER_TOKEN,
    complaint,
    inline,
    quoted,
    repair_messages,
    round_messages,
    shortened,
    tokens,
)
from agents.fences import fenced
from agents.llm.port import Message
from tests.agents.briefs import SUGGESTION, bare_brief, full_brief
from tuner.errors import SpecError
from tuner.experiment.contents import Offsets, StructField
from tuner.experiment.fields import PythonFunction, Source
from tuner.experiment.model import Argument, ShapeBinding
from tuner.experiment.program import Launch, Memset
from tuner.expressions import Expression

GOLDEN = Path(__file__).parent / "golden"


def shown(messages: tuple[Message, ...]) -> str:
    return "".join(f"<<<{message.role}>>>\n{message.content}\n" for message in messages)


def total(messages: tuple[Message, ...]) -> int:
    return sum(tokens(message.content) for message in messages)


CASES = {
    "planning_first": lambda: round_messages("planning", bare_brief(), budget_tokens=8_000),
    "planning_full": lambda: round_messages("planning", full_brief(), budget_tokens=8_000),
    "generation_full": lambda: round_messages(
        "generation", full_brief(), suggestion=SUGGESTION, draft=0, width=1, budget_tokens=8_000
    ),
    "planning_tight": lambda: round_messages("planning", full_brief(), budget_tokens=1_000),
    "repair": lambda: repair_messages(
        round_messages("planning", bare_brief(), budget_tokens=8_000)[:1],
        "```json\n{}\n```",
        "\x1b[31mk.cl:3:\x1b[0m error: use of undeclared identifier '```VEC'",
        by="The compiler",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_wording_is_as_recorded(name: str) -> None:
    assert shown(CASES[name]()) == (GOLDEN / f"{name}.md").read_text()


def test_a_complaint_is_one_short_line() -> None:
    said = "\x1b[31mk.cl:3:\x1b[0m error:\n  use of undeclared identifier `VEC`" + "x" * 300
    line = complaint("The compiler", said)
    assert line.startswith(
        "the compiler reports: k.cl:3: error: use of undeclared identifier 'VEC'"
    )
    assert len(line) < 250


def test_what_readers_do_not_see_reaches_no_model() -> None:
    smuggled = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    said = f"\ufeffint\u2060 a;{smuggled}\u202e\xad\r\n\tint b;\r"
    assert quoted(said) == "```\nint a;\n\tint b;\n```"


def test_it_is_a_pure_function() -> None:
    assert round_messages("planning", full_brief(), budget_tokens=9_000) == round_messages(
        "planning", full_brief(), budget_tokens=9_000
    )


@pytest.mark.parametrize("budget", [900, 1_000, 1_200, 1_500, 2_000, 20_000])
def test_a_budget_is_kept(budget: int) -> None:
    assert total(round_messages("planning", full_brief(), budget_tokens=budget)) <= budget


def test_what_is_least_worth_goes_first_and_is_named() -> None:
    full = shown(round_messages("planning", full_brief(), budget_tokens=8_000))
    tight = shown(round_messages("planning", full_brief(), budget_tokens=1_000))
    assert "Left out for length:" in tight
    assert "kernel void twice(global float *out" in tight
    for heading in ("# Static profile", "# Results of the last search", "# Past rounds"):
        assert heading in full
        assert heading not in tight


def test_a_long_kernel_is_cut_in_the_middle() -> None:
    brief = bare_brief()
    kernel = brief.experiment.kernel
    text = kernel.source.text + "// filler\n" * 5_000 + "// the end\n"
    long = replace(kernel, source=Source(name="k.cl", text=text))
    brief = replace(brief, experiment=replace(brief.experiment, kernel=long))
    messages = round_messages("planning", brief, budget_tokens=4_000)
    assert total(messages) <= 4_000
    assert "characters left out" in messages[1].content
    assert "// the end" in messages[1].content


def test_a_budget_too_small_for_the_kernel_says_so() -> None:
    with pytest.raises(SpecError, match="does not hold the kernel"):
        round_messages("planning", full_brief(), budget_tokens=300)


SEQUENCE = (
    Memset(memset="out"),
    Launch(
        grid=(Expression.parse("tokens"),),
        block=(Expression.parse("64"),),
        entry="sums",
        arguments=("out", "d"),
    ),
    Launch(grid=(Expression.parse("d"),), block=(Expression.parse("32"),), entry="divide"),
)


@pytest.mark.parametrize("role", ["generation", "direct"])
def test_every_step_of_a_sequence_is_told_and_asked_for(
    role: Literal["generation", "direct"],
) -> None:
    brief = full_brief()
    assert brief.incumbent is not None
    kernel = replace(brief.experiment.kernel, launch=None, launches=SEQUENCE)
    brief = replace(
        brief,
        experiment=replace(brief.experiment, kernel=kernel),
        incumbent=replace(brief.incumbent, launch=None, launches=SEQUENCE),
    )
    told = shown(
        round_messages(role, brief, suggestion=SUGGESTION, draft=0, width=1, budget_tokens=8_000)
    )
    sums = "`sums`: grid [tokens], block [64], 0 bytes of dynamic shared memory, takes out, d\n"
    divide = "`divide`: grid [d], block [32], 0 bytes of dynamic shared memory\n"
    memset = "- memset of `out` to byte 0\n"
    assert f"{memset}- {sums}- {divide}" in told
    assert f"{memset}- launch: {sums}- launch: {divide}" in told
    assert '"launches": [{"memset": "…", "byte": 0}, {"entry": "…", "arguments": ["…"],' in told
    assert '"launch":' not in told


def test_structs_and_constants_are_told() -> None:
    brief = bare_brief()
    values = (Expression.parse("d"), 0.5)
    more = (
        Argument(
            name="p",
            kind="struct",
            fields=(
                StructField(name="n", dtype="int32", value=values[:1]),
                StructField(name="s", dtype="float32", value=values),
            ),
        ),
        Argument(name="q", kind="struct", bytes="00ff"),
        Argument(name="t", kind="constant", dtype="int8", shape=values[:1], symbol="ns::t"),
    )
    experiment = replace(brief.experiment, arguments=(*brief.experiment.arguments, *more))
    told = shown(
        round_messages("planning", replace(brief, experiment=experiment), budget_tokens=8_000)
    )
    assert "- `p`: struct {int32 n = d; float32 s = d, 0.5}" in told
    assert "- `q`: struct of 2 bytes" in told
    assert "- `t`: constant int8 [d], in the module's variable `ns::t`" in told


@pytest.mark.parametrize(
    ("objective", "words"),
    [("energy", "What counts is the energy of a launch,"), ("energy_delay", "time and energy,")],
)
def test_another_objective_than_time_is_told(objective, words) -> None:
    brief = full_brief()
    assert "What counts" not in shown(round_messages("planning", brief, budget_tokens=9_000))
    changed = replace(brief, experiment=replace(brief.experiment, objective=objective))
    assert words in shown(round_messages("planning", changed, budget_tokens=9_000))


def test_held_out_shapes_never_reach_a_model() -> None:
    text = shown(
        round_messages(
            "generation",
            full_brief(),
            suggestion=SUGGESTION,
            draft=0,
            width=1,
            budget_tokens=50_000,
        )
    )
    for held_out in full_brief().experiment.shapes.held_out:
        assert str(held_out.symbols["d"]) not in text


@given(st.text(max_size=200), st.integers(min_value=10, max_value=300))
def test_quoted_text_cannot_leave_its_fence(text: str, limit: int) -> None:
    whole = f"before\n{quoted(text, 'c', limit)}\nafter"
    (block,) = fenced(whole).blocks
    assert block.closed
    assert fenced(whole).outside == "before\nafter"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", whole)


@given(st.text(max_size=500))
def test_inline_text_stays_on_its_line(text: str) -> None:
    flat = inline(text, 10_000)
    assert "\n" not in flat
    assert "`" not in flat


@given(st.text(max_size=400), st.integers(min_value=30, max_value=200))
def test_shortened_text_is_bounded(text: str, limit: int) -> None:
    assert len(shortened(text, limit)) <= limit + 50


@given(st.text())
def test_tokens_are_not_underestimated_for_bytes(text: str) -> None:
    assert tokens(text) * BYTES_PER_TOKEN >= len(text.encode("utf-8", "replace"))


def test_the_brief_tells_of_counters_too() -> None:
    brief = replace(full_brief(), profile=(("DRAM throughput %", 81.25),))
    text = round_messages("planning", brief, budget_tokens=9_000)[1].content
    assert "- DRAM throughput %: 81.2\n" in text


def test_a_brief_says_what_buffers_hold_how_types_are_called_and_what_shapes_weigh() -> None:
    experiment = bare_brief().experiment
    offsets = Offsets(offsets=Expression.parse("4 * tokens"))
    arguments = (
        replace(experiment.arguments[0], dtype="T"),
        replace(experiment.arguments[1], range=(-2.0, 3.5), specials=("nan",)),
        Argument(name="at", kind="in", dtype="int32", shape=experiment.arguments[1].shape),
    )
    arguments = (*arguments[:2], replace(arguments[2], values=offsets), experiment.arguments[2])
    shapes = replace(
        experiment.shapes,
        tune=(ShapeBinding({"tokens": 16, "d": 4096, "T": "float16"}, weight=2.5),),
    )
    reference = PythonFunction(
        file="r.py", text="def twice(x):\n    return 2 * x", function="twice"
    )
    brief = replace(
        bare_brief(),
        experiment=replace(experiment, arguments=arguments, shapes=shapes, reference=reference),
    )
    text = shown(round_messages("planning", brief, budget_tokens=8_000))
    for words in (
        "holds normal values within [-2, 3.5], also nan\n",
        "aligned to one element (the spec promises no more); holds offsets that never decrease",
        "decrease, from 0 to 4 * tokens\n",
        "Type symbols: `T` is float16 (`half`).",
        "(weight 2.5) |",
        "    return 2 * x",
        "300 configurations in 600 seconds",
    ):
        assert words in text
