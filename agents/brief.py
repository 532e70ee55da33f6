"""The brief: all that a model is told, as a pure function of plain data, within a token budget.

Owns the sections, their order of importance, and the safety of foreign text: whatever a kernel, a
compiler or a model wrote is fenced, bounded and stripped of control characters, so that it reads as
a quotation. Wording is in ``agents/prompts``. Held-out shapes, seeds and machine names have no
place here: there is no field for them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from pydantic import TypeAdapter

from agents.landscape import Landscape
from agents.llm.port import BYTES_PER_TOKEN, Message
from agents.patterns.pattern import Pattern
from agents.replies import Mode, Suggestion
from agents.static_profile import UNKNOWN, Static, roofline
from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.model import Experiment, Template
from tuner.experiment.tolerances import comparison_rules
from tuner.results.statistics import Comparison
from tuner.trial import Configuration

_LEAST_SOURCE_BYTES = 2_000
_COMPLAINT_BYTES = 4_000
_COMPLAINT = re.compile(
    r"That answer cannot be used\. The (?P<who>[^\n]*) says:\n\n(?P<fence>`{3,})\n"
    r"(?P<quoted>.*?)\n(?P=fence)\n",
    re.S,
)
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTimes:
    """One tune shape, times in microseconds; ``floor`` is what memory or arithmetic allow.

    ``baseline`` is ``None`` where no device was at hand; ``moved`` is the cost in bytes.
    """

    shape: str
    baseline: float | None
    best: float | None = None
    floor: float | None = None
    moved: int | None = None

    @property
    def share(self) -> float | None:
        """How much of the possible speed the best so far reaches, else the kernel as it stands."""
        found = roofline([self.floor], [self.best or self.baseline])
        return found and found[0]

    @property
    def rate(self) -> float | None:
        """Gigabytes a second of the best so far, else of the kernel as it stands."""
        time = self.best or self.baseline
        return None if self.moved is None or time is None else self.moved / time / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """A past round: what was suggested, and what testing said of it.

    ``speedup`` is the confirmed one over the baseline, ``interval`` its bounds; ``gain`` compares
    it with the best before it, in the same processes, and ``portfolio_gain`` the portfolio with
    that before it; ``roofline`` is the least and greatest share of the possible speed over the tune
    shapes; ``static`` is of the best configuration.
    """

    number: int
    suggestion: Suggestion
    verdict: str
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    gain: Comparison | None = None
    portfolio_gain: Comparison | None = None
    roofline: tuple[float, float] | None = None
    static: Static = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialist:
    """A configuration of the portfolio and the ``shapes`` it serves, with its times as ``best``."""

    template: Template
    configuration: Configuration
    shapes: tuple[ShapeTimes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What is known at the start of a step. ``incumbent`` is the best confirmed template so far.

    ``static`` is of the kernel as it stands, ``best_static`` of the incumbent's best configuration.
    ``specialists`` are what is faster than that on some shapes.
    """

    experiment: Experiment
    device: Device
    shapes: tuple[ShapeTimes, ...]
    static: Static = UNKNOWN
    best_static: Static = UNKNOWN
    incumbent: Template | None = None
    specialists: tuple[Specialist, ...] = ()
    landscape: Landscape | None = None
    rounds: tuple[RoundSummary, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    profile: tuple[tuple[str, float], ...] = ()

    @property
    def other_templates(self) -> tuple[Template, ...]:
        """Those of specialists that are not the incumbent, each once."""
        found: list[Template] = []
        for one in self.specialists:
            if one.template not in (self.incumbent, *found):
                found.append(one.template)
        return tuple(found)


BRIEFS: TypeAdapter[Brief] = TypeAdapter(Brief)


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the brief; of those that may be left out, the lowest ``worth`` goes first."""

    name: str
    worth: int


_SECTIONS = (
    _Section("task", 100),
    _Section("device", 60),
    _Section("kernel", 100),
    _Section("shapes", 80),
    _Section("usage", 20),
    _Section("profile", 45),
    _Section("incumbent", 50),
    _Section("specialists", 28),
    _Section("landscape", 40),
    _Section("rounds", 30),
    _Section("patterns", 25),
)
_INDISPENSABLE = 100


def planning_messages(brief: Brief, *, budget_tokens: int) -> tuple[Message, ...]:
    """Ask for one suggestion.

    Raises:
        SpecError: the budget does not hold even the kernel.
    """
    return _conversation("planning", brief, budget_tokens)


def generation_messages(
    brief: Brief,
    suggestion: Suggestion,
    *,
    budget_tokens: int,
    mode: Mode = "template",
    draft: int = 0,
    width: int = 1,
) -> tuple[Message, ...]:
    """Ask for a template, or a whole kernel, that follows ``suggestion``.

    ``draft`` counts from 0 the ``width`` drafts that a round asks for.

    Raises:
        SpecError: the budget does not hold even the kernel.
    """
    role = "generation" if mode == "template" else "direct"
    return _conversation(
        role, brief, budget_tokens, suggestion=suggestion, draft=draft, width=width
    )


def repair_messages(
    asked: Sequence[Message], answered: str, complaint: str, *, what: str
) -> tuple[Message, ...]:
    """Go on with a conversation whose last answer failed: quote the complaint, ask for another."""
    text = _environment().get_template("repair.md.j2").render(complaint=complaint, what=what)
    return (
        *asked,
        Message(role="assistant", content=answered),
        Message(role="user", content=text),
    )


def last_complaint(messages: Sequence[Message]) -> str:
    """Who complained of the last answer and how, as :func:`repair_messages` quotes it, in a line.

    Nothing in a conversation that was not mended.
    """
    found = _COMPLAINT.match(messages[-1].content)
    return inline(f"the {found['who']} says: {found['quoted']}", _SHOWN) if found else ""


def tokens(text: str) -> int:
    """An upper estimate of a text's tokens."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def quoted(text: str, language: str = "", limit: int = _COMPLAINT_BYTES) -> str:
    """Foreign text as a fenced block that it cannot close, cut in the middle to ``limit``."""
    clean = shortened(scrubbed(text), limit)
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{clean.rstrip()}\n{fence}"


def inline(text: str, limit: int = 300) -> str:
    """Foreign text as one line without marks that could end a code span."""
    line = " ".join(scrubbed(text).replace("`", "'").split())
    return " ".join(shortened(line, limit).split())


def scrubbed(text: str) -> str:
    """The text without control characters (line ends and tabs stay), or ways to reorder it."""
    text = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text.replace("\r\n", "\n"))
    return re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]",
        "",
        text,
    )


def shortened(text: str, limit: int) -> str:
    """At most about ``limit`` characters: beginning and end, and how much is missing between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def _conversation(
    role: str, brief: Brief, budget_tokens: int, **more: object
) -> tuple[Message, ...]:
    environment = _environment()
    system = environment.get_template("system.md.j2").render(
        backend=traits_of(brief.experiment.kernel.language).title
    )
    closing = environment.get_template(f"{role}.md.j2").render(brief=brief, **more)
    room = budget_tokens - tokens(system) - tokens(closing)
    body = _body(brief, room)
    return (
        Message(role="system", content=system),
        Message(role="user", content=f"{body}\n{closing}"),
    )


def _body(brief: Brief, room: int) -> str:
    """The sections, the least worthy left out and then the sources shortened until they fit."""
    source_limit = 10**6
    told = [section for section in _SECTIONS if _section(section.name, brief, source_limit)]
    kept = list(told)
    while True:
        texts = [_section(section.name, brief, source_limit) for section in kept]
        left_out = [section.name for section in told if section not in kept]
        if left_out:
            texts.append(f"Left out for length: {', '.join(left_out)}.\n")
        body = "\n".join(texts)
        if tokens(body) <= room:
            return body
        dispensable = [section for section in kept if section.worth < _INDISPENSABLE]
        if dispensable:
            kept.remove(min(dispensable, key=lambda section: section.worth))
            continue
        longest = min(source_limit, len(brief.experiment.kernel.source.text))
        source_limit = longest - max(500, (tokens(body) - room) * BYTES_PER_TOKEN)
        if source_limit < _LEAST_SOURCE_BYTES:
            raise SpecError(
                f"a brief of {room} tokens does not hold the kernel; raise the agents' token budget"
            )


def _section(name: str, brief: Brief, source_limit: int) -> str:
    template = _environment().get_template(f"{name}.md.j2")
    text = template.render(brief=brief, source_limit=source_limit).strip("\n")
    return f"{text}\n" if text else ""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - Markdown for a model, not HTML
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = {
        "quoted": quoted,
        "inline": inline,
        "number": lambda value: f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}",
        "percent": lambda value: f"{100 * value:.0f} %",
    }
    environment.filters.update(filters)
    environment.globals["compared"] = comparison_rules
    return environment
