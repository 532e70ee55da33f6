"""Reading a model's reply: a JSON object of a known form, and source beside it.

Owns the forms of replies and the reasons to refuse one, worded for the model. Source stands in its
own fenced block, so that quoting cannot damage it. Refusals are values: nothing that a model writes
raises here.
"""

import json
from collections.abc import Callable, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agents.fences import fenced
from agents.llm.port import Reply
from agents.settings import Mode
from tuner.backends.registry import backends
from tuner.csource.tree import is_truncated
from tuner.experiment.contents import STRICT, Name, Tolerance
from tuner.experiment.fields import MAX_FILE_BYTES, Source
from tuner.experiment.model import CompilerFlag, Launch, Memset, ScratchArgument, Template
from tuner.expressions import Expression
from tuner.trial import Value

T = TypeVar("T")

_C_LANGUAGES = frozenset(
    {"c", "c++", "cc", "cpp", "cuda-cpp", "cuh", "cxx", "h", "hpp", "opencl-c"}
)
_PYTHON_LANGUAGES = frozenset({"python", "py", "python3"})
_JSON_LANGUAGES = frozenset({"json", "jsonc", "json5"})
_MOST_ERRORS = 8

READER = "The parser of replies"
"""Names this module in complaints."""

Prose = Annotated[str, Field(min_length=1, max_length=2_000)]
Aside = Annotated[str, Field(max_length=2_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """Why a reply cannot be used; ``detail`` is worded for the model."""

    kind: Literal["unusable"] = "unusable"
    code: Literal["truncated", "no_object", "no_source", "several", "malformed", "schema"]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What the next draft should do. With ``stop`` nothing is left to try.

    Raises:
        ValueError: A field is empty although ``stop`` is false.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    bottleneck: Aside = ""
    strategy: Aside = ""
    expected_effect: Aside = ""
    refuted_by: Aside = ""
    stop: bool = False

    def __post_init__(self) -> None:
        said = asdict(self)
        if not self.stop and (empty := [name for name, value in said.items() if value == ""]):
            raise ValueError(f"{', '.join(empty)} must not be empty unless stop is true")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDraft:
    """A parameter's values in order, and why to search them."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    values: Annotated[tuple[Value, ...], Field(min_length=1, max_length=64)]
    reason: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintDraft:
    """A condition over parameters, symbols and device limits, and what fails without it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    expression: Expression
    reason: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDraft:
    """The JSON part of a reply that rewrites the kernel as one fixed implementation."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    entry: Annotated[str, Field(min_length=1, max_length=500)]
    launch: Launch | None = None
    launches: Annotated[tuple[Launch | Memset, ...], Field(max_length=16)] = ()
    defines: Annotated[dict[Name, Expression], Field(max_length=64)] = field(default_factory=dict)
    scratch: Annotated[tuple[ScratchArgument, ...], Field(max_length=8)] = ()
    rationale: Prose

    def template(self, source: Source) -> Template:
        """The template without parameters: a space of one configuration."""
        return Template(
            source=source,
            entry=self.entry,
            parameters={},
            launch=self.launch,
            launches=self.launches,
            defines=self.defines,
            scratch=self.scratch,
            rationale=self.rationale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateDraft(KernelDraft):
    """The JSON part of a reply with a template. ``seeds`` are values to try first."""

    parameters: Annotated[dict[Name, ParameterDraft], Field(min_length=1, max_length=24)]
    constraints: Annotated[tuple[ConstraintDraft, ...], Field(max_length=64)] = ()
    options: Annotated[tuple[str | CompilerFlag, ...], Field(max_length=32)] | None = None
    seeds: Annotated[tuple[dict[Name, Value], ...], Field(max_length=16)] = ()

    def template(self, source: Source) -> Template:
        """The template with this description and ``source``."""
        return replace(
            KernelDraft.template(self, source),
            parameters={name: draft.values for name, draft in self.parameters.items()},
            constraints=tuple(draft.expression for draft in self.constraints),
            options=self.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTemplate:
    """A parsed generation reply: the template, and values to try first."""

    template: Template
    seeds: tuple[dict[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionDraft:
    """The JSON part of a reply that completes a draft spec; the reference function is its source.

    ``ranges`` are of inputs, ``tolerances`` of outputs, each for the arguments that need one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    reference: Name
    domain: Annotated[tuple[Expression, ...], Field(max_length=32)]
    ranges: Annotated[dict[Name, tuple[float, float]], Field(max_length=64)] = field(
        default_factory=dict
    )
    tolerances: Annotated[dict[Name, Tolerance], Field(max_length=64)] = field(default_factory=dict)
    rationale: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedCompletion:
    """A parsed completion reply: the description, and the text of the Python file."""

    draft: CompletionDraft
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """A tuning reply: configurations to try next, and why."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    configurations: Annotated[tuple[dict[Name, Value], ...], Field(max_length=64)]
    reason: Aside = ""


_PROPOSALS: TypeAdapter[Proposals] = TypeAdapter(Proposals)
_COMPLETIONS: TypeAdapter[CompletionDraft] = TypeAdapter(CompletionDraft)
_SUGGESTIONS: TypeAdapter[Suggestion] = TypeAdapter(Suggestion)
_DRAFTS: TypeAdapter[KernelDraft] = TypeAdapter(TemplateDraft)
_KERNELS: TypeAdapter[KernelDraft] = TypeAdapter(KernelDraft)


def read_suggestion(reply: Reply) -> Suggestion | Unusable:
    """The suggestion in a planning reply: one JSON object."""
    return _guarded(lambda: _object(reply, _SUGGESTIONS))


def read_proposals(reply: Reply) -> tuple[dict[str, Value], ...]:
    """The configurations in a tuning reply: one JSON object. None if it cannot be used."""
    found = _guarded(lambda: _object(reply, _PROPOSALS))
    return () if isinstance(found, Unusable) else found.configurations


def read_template(reply: Reply, file: str, mode: Mode = "template") -> GeneratedTemplate | Unusable:
    """The template in a reply: one JSON object, one source block; ``file`` names the source."""

    def read() -> GeneratedTemplate:
        draft = _object(reply, _DRAFTS if mode == "template" else _KERNELS)
        source = Source(name=file, text=_source(reply))
        seeds = draft.seeds if isinstance(draft, TemplateDraft) else ()
        return GeneratedTemplate(template=draft.template(source), seeds=seeds)

    return _guarded(read)


def read_completion(reply: Reply) -> GeneratedCompletion | Unusable:
    """The completion in a reply: one JSON object, one Python block."""

    def read() -> GeneratedCompletion:
        draft = _object(reply, _COMPLETIONS)
        return GeneratedCompletion(draft=draft, source=_block(reply, _PYTHON_LANGUAGES))

    return _guarded(read)


class _UnusableError(Exception):
    """Why a reply is refused; never leaves this module."""

    def __init__(self, code: Any, detail: str) -> None:
        super().__init__(detail)
        self.reason = Unusable(code=code, detail=detail)


def _guarded(read: Callable[[], T]) -> T | Unusable:
    try:
        return read()
    except _UnusableError as problem:
        return problem.reason


def _object(reply: Reply, adapter: TypeAdapter[T]) -> T:
    text = _object_text(reply)
    try:
        json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise _UnusableError("malformed", "the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        cut = reply.finish_reason == "length" or error.pos >= len(text.rstrip())
        detail = f"the JSON is broken at line {error.lineno}, column {error.colno}: {error.msg}"
        raise _UnusableError("truncated" if cut else "malformed", detail) from None
    except ValueError as error:
        raise _UnusableError("malformed", f"the JSON is broken: {error}") from None
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise _UnusableError("schema", _errors(error)) from None


def _object_text(reply: Reply) -> str:
    parts = fenced(_answer(reply))
    for block in parts.blocks:
        if not block.closed:
            raise _UnusableError(
                "truncated", f"the fenced block that opens at line {block.line} is not closed"
            )
    found = [block.text for block in parts.blocks if block.language in _JSON_LANGUAGES]
    if not found:
        untagged = (block.text for block in parts.blocks if not block.language)
        found = [text for text in untagged if text.lstrip().startswith("{")]
    if not found and (bare := _bare_object(parts.outside)):
        found = [bare]
    if not found:
        cut = reply.finish_reason == "length"
        raise _UnusableError(
            "truncated" if cut else "no_object",
            "the reply has no JSON object; put it in a block fenced with ```json",
        )
    if len(found) > 1:
        raise _UnusableError("several", f"the reply has {len(found)} JSON objects; give one")
    return found[0]


def _answer(reply: Reply) -> str:
    """The reply without the reasoning before it, which some servers leave in the text."""
    return reply.text.rpartition("</think>")[2]


def _bare_object(text: str) -> str:
    """An object without a fence, from the first line that begins with it to the end."""
    lines = text.strip().splitlines()
    begins = [number for number, line in enumerate(lines) if line.lstrip().startswith("{")]
    return "\n".join(lines[begins[0] :]) if begins else ""


def _source(reply: Reply) -> str:
    languages = _C_LANGUAGES | {
        name
        for one in backends()
        for name in (one.name, *(s.removeprefix(".") for s in one.suffixes))
    }
    text = _block(reply, languages)
    if is_truncated(text):
        raise _UnusableError(
            "truncated", "the source ends too early: a brace, comment or #if is not closed"
        )
    return text


def _block(reply: Reply, languages: Set[str]) -> str:
    """The text of the one block in one of these languages, or else without a language."""
    blocks = [block for block in fenced(_answer(reply)).blocks if block.language in languages]
    if not blocks:
        blocks = [
            block
            for block in fenced(_answer(reply)).blocks
            if not block.language and not block.text.lstrip().startswith("{")
        ]
    if not blocks:
        raise _UnusableError(
            "no_source", "the reply has no source; put the whole file in one fenced block"
        )
    if len(blocks) > 1:
        lines = ", ".join(str(block.line) for block in blocks)
        raise _UnusableError(
            "several",
            f"the reply has {len(blocks)} source blocks (lines {lines}); "
            "put the whole file in one block and quote no other source",
        )
    text = blocks[0].text
    if not text.strip():
        raise _UnusableError("no_source", "the source block is empty")
    if len(text.encode("utf-8", "replace")) > MAX_FILE_BYTES or "\0" in text:
        raise _UnusableError("malformed", "the source is larger than 1 MiB or contains a NUL byte")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _UnusableError("malformed", "the source is not valid Unicode")
    return text


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} occurs twice")
    return seen


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _errors(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for detail in found[:_MOST_ERRORS]:
        place = ".".join(str(part) for part in detail["loc"])[:200]
        lines.append(f"{place}: {detail['msg'][:300]}" if place else detail["msg"][:300])
    if len(found) > _MOST_ERRORS:
        lines.append(f"and {len(found) - _MOST_ERRORS} more")
    return "\n".join(lines)
