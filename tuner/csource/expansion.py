"""What a source says once its macros are expanded: the words and literals a compiler would see.

No preprocessor: conditions are not evaluated. Every branch is read, and where a macro has several
definitions each of the last few is tried, so that what may be said is seen. Own macros only;
includes are judged elsewhere.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.errors import SpecError

MAX_WORDS = 200_000
MAX_DEPTH = 50
MAX_DEFINITIONS = 16

_WORD = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<literal>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
    |\.\.\. | [A-Za-z_$][\w$]* | \.?\d(?:[eEpP][+-]|'?\w|\.)*
    |\#\# | <<< | >>> | \n | [^\S\n]+ | .""",
    re.S | re.X,
)
_DIGRAPHS = {"%:%:": "##", "%:": "#", "<%": "{", "%>": "}", "??=": "#", "??/": "\\"}

Line = tuple[str, ...]
_Painted = tuple[str, frozenset[str]]
"""A word, and the macros that it came from, which it calls no more."""


def spliced(text: str) -> str:
    """The text in lines as a compiler joins them: digraphs, trigraphs, continuations resolved."""
    text = re.sub(r"\r\n?|[\v\f]", lambda end: "\n" if end[0][0] == "\r" else " ", text)
    text = re.sub(r"%:%:|%:|<%|%>|\?\?=|\?\?/", lambda found: _DIGRAPHS[found[0]], text)
    return re.sub(r"\\[ \t]*\n", "", text)


def words(text: str) -> Iterator[str]:
    """The words of a spliced text; comments and spaces become one space, lines keep their end."""
    for found in _WORD.finditer(text):
        if found["comment"] or (found[0].isspace() and found[0] != "\n"):
            yield " "
        else:
            yield found[0]


@dataclass(frozen=True, slots=True)
class _Macro:
    """``parameters`` is ``None`` for one without parentheses."""

    parameters: Line | None
    body: Line


def source_lines(text: str) -> list[Line]:
    """The words of each line, without comments and spaces."""
    return [tuple(_line(line)) for line in "".join(words(spliced(text))).split("\n")]


def expanded(text: str) -> tuple[Line, ...]:
    """:func:`expanded_lines` of a text."""
    return expanded_lines(source_lines(text))


def expanded_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The code less its directives, expanded with the last definitions, and with each earlier set.

    Raises:
        SpecError: it grows beyond :data:`MAX_WORDS` words or :data:`MAX_DEPTH` nested macros, a
            macro has more than :data:`MAX_DEFINITIONS` definitions, or one joins words to a brace.
    """
    found: list[Line] = []
    most = 1
    while len(found) < most:
        expander = _Expander(len(found))
        found.append(expander.run(lines))
        most = expander.most
        if most > MAX_DEFINITIONS:
            raise SpecError(f"a macro is defined in more than {MAX_DEFINITIONS} ways")
    return tuple(found)


def _line(text: str) -> Iterator[str]:
    return (word for word in words(text) if word != " ")


class _Expander:
    """One reading, with each macro's definition before the last ``number`` ones."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._macros: dict[str, list[_Macro]] = {}
        self._made = self._depth = 0
        self.most = 1

    def run(self, lines: Sequence[Line]) -> Line:
        out: list[_Painted] = []
        pending: list[_Painted] = []
        for line in lines:
            if line[:1] == ("#",):
                out += self._expand(pending)
                pending = []
                self._define(line)
            else:
                pending += [(word, frozenset[str]()) for word in line]
        return tuple(word for word, _ in [*out, *self._expand(pending)])

    def _define(self, line: Line) -> None:
        if line[1:2] != ("define",) or len(line) < 3:
            return
        name, rest = line[2], line[3:]
        macro = _Macro(None, rest)
        if rest[:1] == ("(",) and ")" in rest:
            end = rest.index(")")
            names = (word for word in rest[1:end] if word != ",")
            parameters = tuple("__VA_ARGS__" if word == "..." else word for word in names)
            macro = _Macro(parameters, rest[end + 1 :])
        known = self._macros.setdefault(name, [])
        if macro in known:
            known.remove(macro)
        known.append(macro)
        self.most = max(self.most, len(known))

    def _expand(self, given: Sequence[_Painted]) -> list[_Painted]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SpecError(f"its macros are nested more than {MAX_DEPTH} deep")
        waiting, out = deque(given), []
        while waiting:
            word, hidden = waiting.popleft()
            macro = self._macro(word)
            called = macro is not None and macro.parameters is not None
            if macro is None or word in hidden or (called and not _opens(waiting)):
                out.append((word, hidden))
                continue
            arguments = _arguments(waiting) if called else []
            made = self._substituted(macro, arguments)
            self._made += len(made) + 1
            if self._made > MAX_WORDS:
                raise SpecError(f"its macros expand to more than {MAX_WORDS} words")
            waiting.extendleft((new, own | hidden | {word}) for new, own in reversed(made))
        self._depth -= 1
        return out

    def _macro(self, word: str) -> _Macro | None:
        known = self._macros.get(word)
        return known[max(0, len(known) - 1 - self._number)] if known else None

    def _substituted(
        self, macro: _Macro, arguments: Sequence[tuple[_Painted, ...]]
    ) -> list[_Painted]:
        names = macro.parameters or ()
        given = dict(zip(names, arguments, strict=False))
        if names[-1:] == ("__VA_ARGS__",):
            comma = (",", frozenset[str]())
            rest = [word for one in arguments[len(names) - 1 :] for word in (*one, comma)]
            given["__VA_ARGS__"] = tuple(rest[:-1])
        out: list[_Painted] = []
        body, pasting = macro.body, False
        for place, word in enumerate(body):
            after = body[place + 1 : place + 2]
            if word == "##":
                pasting = bool(out)
                continue
            if word == "#" and after and after[0] in given:
                continue
            new: list[_Painted] = [(word, frozenset())]
            if word in given and place and body[place - 1] == "#":
                new = [(_quoted(given[word]), frozenset())]
            elif word in given and (pasting or after == ("##",)):
                new = list(given[word])
            elif word in given:
                new = self._expand(given[word])
            if pasting and new:
                joined = out.pop()[0] + new.pop(0)[0]
                if joined in _DIGRAPHS:
                    raise SpecError(f"a macro joins words to '{joined}'")
                out += [(part, frozenset[str]()) for part in _line(joined)]
            pasting = False
            out += new
        return out


def _opens(waiting: "deque[_Painted]") -> bool:
    return bool(waiting) and waiting[0][0] == "("


def _quoted(argument: Sequence[_Painted]) -> str:
    text = " ".join(word for word, _ in argument)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _arguments(waiting: "deque[_Painted]") -> list[tuple[_Painted, ...]]:
    """What stands between the parentheses that come next, and takes them off."""
    found: list[tuple[_Painted, ...]] = []
    current: list[_Painted] = []
    depth = 0
    while waiting:
        word, hidden = waiting.popleft()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0:
            break
        if word == "," and depth == 1:
            found.append(tuple(current))
            current = []
        elif word != "(" or depth > 1:
            current.append((word, hidden))
    return [*found, tuple(current)]
