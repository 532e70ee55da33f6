"""Reads YAML as plain data, with the line and column of every value and key.

Scalars follow YAML 1.2 (``1e-3`` is a number), but ``1_000`` is one too. What YAML readers disagree
about is refused: unquoted ``on off yes no``, leading zeros, duplicate keys, merge keys, tags. The
text is untrusted: its size, its depth and its growth by aliases are bounded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml import events as ev

from tuner.experiment.problems import Mark, Problem, SpecProblems

Path = tuple[str | int, ...]
Data = dict[str, "Data"] | list["Data"] | str | int | float | bool | None

MAX_BYTES = 8 << 20
MAX_DEPTH = 24
MAX_NODES = 50_000
MAX_KEYS = 1_000
"""Of one mapping, so that hostile ones are refused before they were read."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_RADIX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_SPECIAL: dict[str, Data] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN"), float("nan")),
}
_AMBIGUOUS = frozenset({"on", "off", "yes", "no"})


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file as data; ``values`` and ``keys`` hold the mark of each path's value and key."""

    name: str
    lines: tuple[str, ...]
    data: Data
    values: dict[Path, Mark]
    keys: dict[Path, Mark]
    problems: tuple[Problem, ...]

    def problem(self, path: Path, message: str, *, at_key: bool = False) -> Problem:
        """A problem at a path, or at its nearest ancestor in the file."""
        for length in range(len(path), -1, -1):
            above = path[:length]
            mark = self.keys.get(above) if at_key and above else None
            if mark := mark or self.values.get(above):
                return Problem(self.name, mark, self.line(mark), message)
        return Problem(self.name, None, "", message)

    def line(self, mark: Mark) -> str:
        """The text of the mark's line."""
        return self.lines[mark.line - 1] if mark.line <= len(self.lines) else ""


def parse(text: str, name: str) -> Document:
    """Read one YAML document; lesser problems are collected in it.

    Raises:
        SpecProblems: The text is not YAML, or exceeds a bound.
    """
    lines = tuple(text.splitlines())
    if len(text) > MAX_BYTES:
        raise SpecProblems.of([Problem(name, None, "", f"larger than {MAX_BYTES >> 20} MiB")])
    reader = _DocumentReader(name, lines)
    try:
        data = reader.document(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        message = error.problem or error.context or "not YAML"
        if error.problem and error.context:
            message = f"{error.problem} {error.context}"
        mark = Mark(place.line + 1, place.column + 1) if place else Mark(1, 1)
        raise SpecProblems.of([reader.problem(mark, f"not YAML: {message}")]) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = len(before) - (before.rfind("\n") + 1) + 1
        mark = Mark(before.count("\n") + 1, column)
        message = f"a character that YAML does not allow: {error.character!r}"
        raise SpecProblems.of([reader.problem(mark, message)]) from None
    except (yaml.YAMLError, RecursionError) as error:
        message = f"not YAML: {type(error).__name__}"
        raise SpecProblems.of([Problem(name, None, "", message)]) from None
    return Document(name, lines, data, reader.values, reader.keys, tuple(reader.problems))


@dataclass(slots=True)
class _DocumentReader:
    """Builds data from lazy parser events, so that exceeding a bound stops the parser."""

    name: str
    lines: tuple[str, ...]
    values: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _anchors: dict[str, tuple[Data, int]] = field(default_factory=dict)
    _nodes: int = 0

    def problem(self, mark: Mark, message: str) -> Problem:
        text = self.lines[mark.line - 1] if mark.line <= len(self.lines) else ""
        return Problem(self.name, mark, text, message)

    def _refusal(self, event: ev.Event, message: str) -> SpecProblems:
        return SpecProblems.of([*self.problems, self.problem(_mark(event), message)])

    def document(self, events: Iterator[ev.Event]) -> Data:
        data: Data = None
        documents = 0
        for event in events:
            if isinstance(event, ev.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refusal(event, "only one document is allowed")
                data = self._node(next(events), events, ())
        return data

    def _node(self, event: ev.Event, events: Iterator[ev.Event], path: Path) -> Data:
        mark = self.values[path] = _mark(event)
        before = self._nodes
        self._count(event, 1)
        if isinstance(event, ev.AliasEvent):
            return self._alias(event, path)
        assert isinstance(event, ev.ScalarEvent | ev.CollectionStartEvent)
        if len(path) > MAX_DEPTH:
            raise self._refusal(event, f"nested deeper than {MAX_DEPTH} levels")
        if event.tag is not None and event.tag != "!":
            self.problems.append(self.problem(mark, f"tags such as '{event.tag}' are not allowed"))
        data: Data
        if isinstance(event, ev.ScalarEvent):
            data = self._scalar(event, mark)
        elif isinstance(event, ev.SequenceStartEvent):
            data = self._sequence(events, path)
        else:
            data = self._mapping(events, path)
        if event.anchor:
            self._anchors[event.anchor] = data, self._nodes - before
        return data

    def _count(self, event: ev.Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._refusal(event, f"more than {MAX_NODES} values")

    def _alias(self, event: ev.AliasEvent, path: Path) -> Data:
        if event.anchor is None or event.anchor not in self._anchors:
            raise self._refusal(event, f"unknown anchor '{event.anchor}'")
        data, nodes = self._anchors[event.anchor]
        self._count(event, nodes)
        if len(path) + _depth(data) > MAX_DEPTH:
            raise self._refusal(event, f"nested deeper than {MAX_DEPTH} levels")
        return data

    def _sequence(self, events: Iterator[ev.Event], path: Path) -> list[Data]:
        items: list[Data] = []
        while not isinstance(event := next(events), ev.SequenceEndEvent):
            items.append(self._node(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[ev.Event], path: Path) -> dict[str, Data]:
        items: dict[str, Data] = {}
        while not isinstance(event := next(events), ev.MappingEndEvent):
            if not isinstance(event, ev.ScalarEvent):
                raise self._refusal(event, "a key must be a name")
            if len(items) == MAX_KEYS:
                raise self._refusal(event, f"more than {MAX_KEYS} keys in one mapping")
            key, mark = event.value, _mark(event)
            self._check_key(event, mark)
            if not _is_text(key):
                self._node(next(events), events, (*path, key))
            elif key in items:
                message = f"duplicate key '{key}', first on line {self.keys[(*path, key)].line}"
                self.problems.append(self.problem(mark, message))
                self._node(next(events), events, (*path, key, "duplicate"))
            else:
                self.keys[(*path, key)] = mark
                items[key] = self._node(next(events), events, (*path, key))
        return items

    def _check_key(self, event: ev.ScalarEvent, mark: Mark) -> None:
        if event.value == "<<":
            self.problems.append(self.problem(mark, "merge keys ('<<') are not allowed"))
        elif not isinstance(self._scalar(event, mark), str):
            self.problems.append(self.problem(mark, f"a key must be a name, not {event.value}"))

    def _scalar(self, event: ev.ScalarEvent, mark: Mark) -> Data:
        text = event.value
        if not _is_text(text):
            self.problems.append(self.problem(mark, "half of a surrogate pair is not text"))
            return ""
        if event.style is not None:
            return text
        if text in _SPECIAL:
            return _SPECIAL[text]
        message = None
        if text.lower() in _AMBIGUOUS:
            message = f"unquoted '{text}': write true or false, or quote it if it is a name"
        elif _LEADING_ZERO.fullmatch(text):
            message = f"{text} has a leading zero: drop it, or quote the text"
        elif len(text) > 40 and (_INTEGER.fullmatch(text) or _RADIX.fullmatch(text)):
            message = f"a number of {len(text)} digits is too long"
        elif _INTEGER.fullmatch(text):
            return int(text)
        elif _RADIX.fullmatch(text):
            return int(text, 0)
        elif _FLOAT.fullmatch(text):
            if abs(number := float(text)) != float("inf"):
                return number
            message = f"{text} is beyond the range of float64"
        if message:
            self.problems.append(self.problem(mark, message))
        return text


def _is_text(text: str) -> bool:
    """Whether it can be written: YAML's escapes also give halves of surrogate pairs."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def _depth(data: Data) -> int:
    if isinstance(data, dict):
        data = list(data.values())
    return 1 + max(map(_depth, data), default=0) if isinstance(data, list) else 0


def _mark(event: ev.Event) -> Mark:
    assert event.start_mark is not None
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)
