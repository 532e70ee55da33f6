"""The kernels of a source text and their parameters, read without a compiler.

Good enough to help and to warn: comments, directives, simple macros, qualifiers, attributes and
templates are understood; what is not has no element type. The compiler has the last word.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tuner.backends.registry import traits_of
from tuner.device import Backend

_COMMENT = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'
    |(?<![\w$])\d(?:'?\w|\.)*""",
    re.S | re.X,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M | re.S)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+((?:[^\n\\]|\\\n)+)", re.M)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|[^\s\w]|\d[\w.]*")
_QUALIFIERS = frozenset(
    [
        "const",
        "volatile",
        "restrict",
        "__restrict__",
        "__restrict",
        "__global",
        "global",
        "__constant",
        "constant",
        "__private",
        "private",
        "__grid_constant__",
        "typename",
        "struct",
        "register",
    ]
)
_LOCAL = frozenset({"__local", "local"})
_DTYPES = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "uchar": "uint8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "short": "int16",
    "int16_t": "int16",
    "ushort": "uint16",
    "unsigned short": "uint16",
    "uint16_t": "uint16",
    "int": "int32",
    "signed": "int32",
    "int32_t": "int32",
    "uint": "uint32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "uint32_t": "uint32",
    "long": "int64",
    "long long": "int64",
    "int64_t": "int64",
    "ptrdiff_t": "int64",
    "ulong": "uint64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
}
_DIRECTIVE_WAS_HERE = "\0"
MAX_KERNELS = 100
_MAX_PARAMETERS = 20_000  # characters between the parentheses
_VECTOR = re.compile(r"(.*[a-z_])(?:2|3|4|8|16)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: ``dtype`` is that of the elements, or ``None`` for a type not understood."""

    name: str
    type: str
    dtype: str | None
    pointer: bool
    const: bool
    local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A kernel: its name, parameters, and the names of its template parameters with their kinds.

    Not ``certain`` where directives or unknown macros stand among the parameters.
    """

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[tuple[str, str], ...] = ()
    certain: bool = True


def without_comments(source: str) -> str:
    """The source with comments and the contents of literals blanked, lines kept."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        if text[0] == '"':
            return '""'
        if text[0].isdigit():
            return text
        return "0" if text[0] == "'" else " " + "\n" * text.count("\n")

    return _COMMENT.sub(blank, source)


def signatures(source: str, language: Backend) -> tuple[Signature, ...]:
    """The kernels that the source defines, in order; at most :data:`MAX_KERNELS` are looked at.

    Several have one name where directives choose between them.
    """
    text = without_comments(source)
    macros = {name: body.replace("\\\n", " ").strip() for name, body in _MACRO.findall(text)}
    text = _DIRECTIVE.sub(_DIRECTIVE_WAS_HERE, text)
    found: dict[Signature, None] = {}
    qualifier = re.compile(rf"\b(?:{'|'.join(traits_of(language).kernel_qualifiers)})\b")
    for match in islice(qualifier.finditer(text), MAX_KERNELS):
        signature = _signature(text, match.start(), match.end(), macros)
        if signature:
            found[signature] = None
    return tuple(found)


def _signature(text: str, start: int, end: int, macros: dict[str, str]) -> Signature | None:
    position = end
    while match := re.compile(r"\s*([A-Za-z_]\w*)\s*(\(?)").match(text, position):
        position = match.end()
        if not match[2]:
            continue
        inside = _balanced(text, position)
        if inside is None:
            return None
        position += len(inside) + 1
        name = match[1]
        if name.startswith("__") and name.endswith("__"):  # an attribute, bounds …
            continue
        plain = _expand(inside.replace(_DIRECTIVE_WAS_HERE, " "), macros)
        parts = [part for part in _split(plain) if part.strip() not in ("", "void")]
        parameters = tuple(map(_parameter, parts))
        understood = all(p.name and "(" not in p.type for p in parameters)
        return Signature(
            name=name,
            parameters=parameters,
            template=_template(text[:start]),
            certain=understood and _DIRECTIVE_WAS_HERE not in inside,
        )
    return None


def _balanced(text: str, start: int) -> str | None:
    """What stands between the parenthesis before ``start`` and the one that closes it."""
    depth = 1
    for position in range(start, min(len(text), start + _MAX_PARAMETERS)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return None


def _split(text: str) -> Iterator[str]:
    """The parts between commas that are in no brackets."""
    depth, begin = 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield text[begin:position]
            begin = position + 1
    yield text[begin:]


def _expand(text: str, macros: dict[str, str]) -> str:
    """Object-like macros replaced, a few levels deep and within bounds."""
    for _ in range(4):
        longer = re.sub(r"[A-Za-z_]\w*", lambda match: macros.get(match[0], match[0]), text)
        if longer == text or len(longer) > 10_000:
            break
        text = longer
    return text


def _parameter(text: str) -> Parameter:
    tokens = _TOKEN.findall(text.split("=")[0])
    while "__attribute__" in tokens:
        at = tokens.index("__attribute__")
        del tokens[at : len(tokens) - tokens[::-1].index(")")]
    pointer = "*" in tokens or "[" in tokens
    if "[" in tokens:
        tokens = tokens[: tokens.index("[")]
    name = tokens.pop() if tokens and tokens[-1].isidentifier() and len(tokens) > 1 else ""
    # A const after the last star is about the pointer, not about what it points to.
    pointee = tokens[: len(tokens) - tokens[::-1].index("*")] if "*" in tokens else tokens
    words = [word for word in pointee if word not in _QUALIFIERS | _LOCAL and word != "*"]
    base = " ".join(words).replace(" :: ", "::")
    return Parameter(
        name=name,
        type=base,
        dtype=_dtype(base),
        pointer=pointer,
        const="const" in pointee or "constant" in pointee or "__constant" in pointee,
        local=bool(_LOCAL & set(tokens)),
    )


def _dtype(base: str) -> str | None:
    base = base.rpartition("::")[2]
    vector = _VECTOR.fullmatch(base)
    single = base.removesuffix(" int") if base not in _DTYPES else base
    return _DTYPES.get(single) or (_DTYPES.get(vector[1]) if vector else None)


def _template(before: str) -> tuple[tuple[str, str], ...]:
    """Name and kind of the template parameters, where ``before`` ends in a template's head."""
    statement = before[max(before.rfind(mark) for mark in ";}{") + 1 :]
    match = re.search(r"\btemplate\s*<(.*)>", statement, re.S)
    if not match:
        return ()
    named = []
    for part in _split(match[1]):
        tokens = _TOKEN.findall(part.split("=")[0])
        if len(tokens) >= 2:
            named.append((tokens[-1], " ".join(tokens[:-1])))
    return tuple(named)
