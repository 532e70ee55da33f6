"""The brief: all that a model is told, as a pure function of plain data, within a token budget.

Owns the sections, their order of importance, and the safety of foreign text: text of a kernel, a
compiler or a model is fenced, bounded and stripped of control characters, so that it reads as a
quotation. The wording is in ``agents/prompts``. Held-out shapes, seeds and machine names have no
field here, so no model sees them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from agents.llm.port import BYTES_PER_TOKEN, Message
from agents.patterns.pattern import Pattern
from agents.replies import Suggestion
from agents.static_profile import UNKNOWN, StaticProfile, roofline
from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.contents import FromFile, FromPython, Integers, Offsets
from tuner.experiment.fields import MAX_FILE_BYTES
from tuner.experiment.model import Argument, Experiment, Template
from tuner.experiment.tolerances import comparison_rules
from tuner.printable import visible
from tuner.report.markdown import fenced
from tuner.results.landscape import Landscape
from tuner.results.statistics import Comparison
from tuner.trial import Configuration

if TYPE_CHECKING:
    import jinja2

BRIEF_TOKENS = 24_000
"""What a brief may have at most."""

_LEAST_SOURCE_BYTES = 2_000
_QUOTED_LENGTH = 4_000
_COMPLAINT_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTimes:
    """One tune shape, times in microseconds; ``None`` where unknown.

    ``floor`` is the least possible time; ``moved`` are the bytes that one run must move.
    """

    shape: str
    baseline: float | None
    best: float | None = None
    floor: float | None = None
    moved: int | None = None

    @property
    def share(self) -> float | None:
        """Share of the possible speed that the best so far, or else the baseline, reaches."""
        found = roofline([self.floor], [self.best or self.baseline])
        return found and found[0]

    @property
    def rate(self) -> float | None:
        """Gigabytes per second of the best so far, or else of the baseline."""
        time = self.best or self.baseline
        return None if self.moved is None or time is None else self.moved / time / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """A past round: what was suggested, and how it turned out, with ``verdict`` in words.

    ``speedup`` is over the baseline, within ``interval``; ``gain`` over the best before it and
    ``portfolio_gain`` over the portfolio before it, in the same processes. ``roofline`` is the
    lowest and highest share of the possible speed over the tune shapes.
    """

    number: int
    suggestion: Suggestion
    verdict: str
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    gain: Comparison | None = None
    portfolio_gain: Comparison | None = None
    roofline: tuple[float, float] | None = None
    static: StaticProfile = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialist:
    """A configuration of the portfolio and the shapes it serves, with its times as ``best``."""

    template: Template
    configuration: Configuration
    shapes: tuple[ShapeTimes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What is known when a round begins.

    ``incumbent`` is the best confirmed template, ``specialists`` are faster on some shapes.
    ``static`` is the compiled baseline, ``best_static`` the incumbent's best configuration;
    ``profile`` holds hardware counters of the last search's winner.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(defer_build=True)
    experiment: Experiment
    device: Device
    shapes: tuple[ShapeTimes, ...]
    static: StaticProfile = UNKNOWN
    best_static: StaticProfile = UNKNOWN
    incumbent: Template | None = None
    specialists: tuple[Specialist, ...] = ()
    landscape: Landscape | None = None
    rounds: tuple[RoundSummary, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    profile: tuple[tuple[str, float], ...] = ()

    @property
    def other_templates(self) -> tuple[Template, ...]:
        """The specialists' templates without the incumbent, each once."""
        found: list[Template] = []
        for one in self.specialists:
            if one.template not in (self.incumbent, *found):
                found.append(one.template)
        return tuple(found)


BRIEFS: TypeAdapter[Brief] = TypeAdapter(Brief)


_REQUIRED = 100
_SECTIONS = {
    "task": _REQUIRED,
    "device": 60,
    "kernel": _REQUIRED,
    "reference": 35,
    "shapes": 80,
    "usage": 20,
    "profile": 45,
    "incumbent": 50,
    "specialists": 28,
    "landscape": 40,
    "rounds": 30,
    "patterns": 25,
}
"""The sections in order. Of those that are not required, the lowest worth is left out first."""


def round_messages(
    role: str, brief: Brief, *, budget_tokens: int = BRIEF_TOKENS, **more: object
) -> tuple[Message, ...]:
    """Ask in a round for what ``role`` gives; ``more`` is what its prompt is told besides.

    ``planning``: one suggestion. ``generation``: a template that follows ``suggestion``, as number
    ``draft``, from 0, of ``width``; ``direct``: a whole kernel that does. ``tuning``: at most
    ``most`` configurations of ``template``, whose landscape the brief has.

    Raises:
        SpecError: The budget is too small for the kernel alone.
    """
    environment = _environment()
    system = environment.get_template("system.md.j2").render(
        title=traits_of(brief.experiment.kernel.language).title
    )
    closing = environment.get_template(f"{role}.md.j2").render(brief=brief, **more)
    room = budget_tokens - tokens(system) - tokens(closing)
    body = _body(brief, room)
    return (
        Message(role="system", content=system),
        Message(role="user", content=f"{body}\n{closing}"),
    )


def completion_messages(
    experiment: Experiment,
    *,
    facts: Sequence[str],
    guesses: Sequence[str],
    inputs: Sequence[str],
    budget_tokens: int = BRIEF_TOKENS,
) -> tuple[Message, ...]:
    """Ask for what a draft spec lacks: reference, domain, ranges and tolerances.

    ``inputs`` are the names that the reference is given. Held-out shapes are not shown.

    Raises:
        SpecError: The budget is too small for the kernel alone.
    """
    environment = _environment()
    title = traits_of(experiment.kernel.language).title
    system = environment.get_template("completion_system.md.j2").render(title=title)
    body = partial(
        environment.get_template("completion.md.j2").render,
        experiment=experiment,
        facts=facts,
        guesses=guesses,
        inputs=inputs,
        outputs=[a.name for a in experiment.arguments if a.is_output],
        symbols=list(experiment.shapes.tune[0].symbols),
        name=experiment.kernel.entry.partition("<")[0].rpartition("::")[2],
    )
    room = budget_tokens - tokens(system)
    text = _fitted(lambda limit: body(source_limit=limit), room, experiment)
    return Message(role="system", content=system), Message(role="user", content=text)


def repair_messages(
    asked: Sequence[Message], answered: str, detail: str, *, by: str
) -> tuple[Message, ...]:
    """Ask again after an answer failed: ``by`` names the check that refused it, ``detail`` why."""
    text = _environment().get_template("repair.md.j2").render(detail=detail, by=by)
    return (
        *asked,
        Message(role="assistant", content=answered),
        Message(role="user", content=text),
    )


def complaint(by: str, detail: str) -> str:
    """Why the last answer was refused, in one line for people."""
    return inline(f"{by[:1].lower()}{by[1:]} reports: {detail}", _COMPLAINT_LENGTH)


def tokens(text: str) -> int:
    """An upper bound on a text's tokens."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def quoted(text: str, language: str = "", limit: int = _QUOTED_LENGTH) -> str:
    """Foreign text as a fenced block that it cannot close, cut in the middle to ``limit``."""
    return fenced(shortened(scrubbed(text), limit), language)


def inline(text: str, limit: int = 1000) -> str:
    """Foreign text as one line without backticks."""
    line = " ".join(scrubbed(text).replace("`", "'").split())
    return " ".join(shortened(line, limit).split())


def scrubbed(text: str) -> str:
    """The text without control sequences and what readers do not see, except ends and tabs."""
    text = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text.replace("\r\n", "\n"))
    return visible(text)


def shortened(text: str, limit: int) -> str:
    """About ``limit`` characters at most: beginning, end, and how much is left out between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def _body(brief: Brief, room: int) -> str:
    """The sections; until they fit, optional ones are left out, then sources are shortened."""
    names = [name for name in _SECTIONS if _section(name, brief, MAX_FILE_BYTES)]
    kept = list(names)

    def text(source_limit: int) -> str:
        texts = [_section(name, brief, source_limit) for name in kept]
        if left_out := [name for name in names if name not in kept]:
            texts.append(f"Left out for length: {', '.join(left_out)}.\n")
        return "\n".join(texts)

    optional = sorted((n for n in names if _SECTIONS[n] < _REQUIRED), key=lambda n: -_SECTIONS[n])
    while optional and tokens(text(MAX_FILE_BYTES)) > room:
        kept.remove(optional.pop())
    return _fitted(text, room, brief.experiment)


def _fitted(text: Callable[[int], str], room: int, experiment: Experiment) -> str:
    """A text with sources of at most so many characters as fit into ``room`` tokens."""
    found, limit = text(MAX_FILE_BYTES), len(experiment.kernel.source.text)
    while tokens(found) > room:
        limit -= max(500, (tokens(found) - room) * BYTES_PER_TOKEN)
        if limit < _LEAST_SOURCE_BYTES:
            raise SpecError(
                f"a brief of {room} tokens does not hold the kernel; raise the agents' token budget"
            )
        found = text(limit)
    return found


def _section(name: str, brief: Brief, source_limit: int) -> str:
    template = _environment().get_template(f"{name}.md.j2")
    text = template.render(brief=brief, source_limit=source_limit).strip("\n")
    return f"{text}\n" if text else ""


def _contents(argument: Argument) -> str:
    """What a buffer holds before a launch, as words that follow its declaration."""
    if not argument.is_input:
        return ""
    fill = argument.initial if argument.kind == "inout" else argument.values
    match fill:
        case Integers(integers=(low, high)):
            words = f"integers from {low} to {high}"
        case Offsets(offsets=last):
            words = f"offsets that never decrease, from 0 to {last}"
        case FromFile() | FromPython():
            words = "data of the application"
        case _:
            words = f"{fill} values" if fill != "zeros" else "zeros"
    if argument.range is not None:
        words += f" within [{argument.range[0]:g}, {argument.range[1]:g}]"
    if argument.specials:
        words += f", also {', '.join(argument.specials)}"
    return f"; holds {words}"


def _weight(brief: Brief, number: int) -> str:
    """The weight of a tune shape, where it is not 1."""
    tune = brief.experiment.shapes.tune
    weight = tune[number].weight if number < len(tune) else 1.0
    return "" if weight == 1 else f" (weight {weight:g})"


def _types(brief: Brief) -> str:
    """The type symbols of the tune shapes: their values, and each one's name in the language."""
    names = traits_of(brief.experiment.kernel.language).type_names
    found: dict[str, list[str]] = {}
    for binding in brief.experiment.shapes.tune:
        for symbol, value in binding.symbols.items():
            if isinstance(value, str) and value not in found.setdefault(symbol, []):
                found[symbol].append(value)
    return "; ".join(
        f"`{symbol}` is {' or '.join(f'{value} (`{names[value]}`)' for value in values)}"
        for symbol, values in found.items()
    )


@cache
def _environment() -> "jinja2.Environment":
    """Imports Jinja, which takes a tenth of a second: most commands ask no model."""
    import jinja2

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
        "contents": _contents,
        "weight": _weight,
    }
    environment.filters.update(filters)
    environment.globals["types"] = _types
    environment.globals["compared"] = comparison_rules
    return environment
