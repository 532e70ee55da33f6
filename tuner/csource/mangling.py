"""Names of CUDA kernels in binaries: C++ names as the Itanium C++ ABI mangles them.

Reads what kernels have: namespaces, template arguments, parameters of built-in types, pointers and
named types. What goes beyond is left out rather than misread.
"""

import re
from dataclasses import dataclass

_LENGTH = re.compile(r"\d{1,9}")
_INTEGER = re.compile(r"L([a-z])(n?)(\d+)E")
_SUBSTITUTE = re.compile(r"S([0-9A-Z]{0,9})_")
_TEMPLATE = re.compile(r"T(\d{0,9})_")
_MAX_SYMBOL, _MAX_TEXT, _MAX_DEPTH = 8192, 16384, 64
"""Characters of a symbol, characters of one type, and types within types that are understood.

A short symbol can stand for a type of any length, since its parts are referred to by number.
"""

_UNNAMED = "_GLOBAL__N_"
ANONYMOUS = "(anonymous)"
"""Stands for an unnamed namespace."""

_TYPES = {
    "v": "void",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "f": "float",
    "d": "double",
}


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel's name, as source writes it.

    ``scopes`` are the namespaces; ``arguments`` its template arguments, ``parameters`` the types of
    its parameters: ``None`` where they are not understood.
    """

    base: str
    scopes: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = None
    parameters: tuple[str, ...] | None = None

    def __str__(self) -> str:
        """As source writes it: unnamed namespaces are left out."""
        scopes = [name for name in self.scopes if not name.startswith(_UNNAMED)]
        values = f"<{', '.join(self.arguments)}>" if self.arguments else ""
        return "::".join((*scopes, self.base)) + values

    @property
    def qualified(self) -> str:
        """The name with its scopes, ``(anonymous)`` among them, and without arguments."""
        scopes = (ANONYMOUS if name.startswith(_UNNAMED) else name for name in self.scopes)
        return "::".join((*scopes, self.base))


def base_name(symbol: str) -> str:
    """The function's own name: ``kernel`` for ``_ZN2ns6kernelIfEEvPT_``; C names as they are."""
    return demangled(symbol).base


def source_name(symbol: str) -> str:
    """The name as source writes it, such as ``ns::kernel<float, 4>``.

    Template arguments that are not understood are left out together, as are unnamed namespaces.
    """
    return str(demangled(symbol))


def demangled(symbol: str) -> KernelName:
    """The parts of a name; of a C name itself alone."""
    if not symbol.startswith("_Z") or len(symbol) > _MAX_SYMBOL:
        return KernelName(symbol)
    reader = _Reader(symbol)
    parameters = None
    try:
        reader.function()
        parameters = reader.parameters()
    except (_NotUnderstood, IndexError):
        pass
    if not reader.names:
        return KernelName(symbol)
    *scopes, base = reader.names
    arguments = None if reader.arguments is None else tuple(reader.arguments)
    return KernelName(base, tuple(scopes), arguments, parameters)


class _NotUnderstood(Exception):
    """Something beyond what is read here."""


class _Reader:
    """Reads one mangled name; ``names`` and ``arguments`` are as far as it came."""

    def __init__(self, symbol: str) -> None:
        self._text = symbol
        self._at = len("_Z")
        self._depth = 0
        self._known: list[str] = []
        """What ``S_``, ``S0_`` … stand for, in order."""
        self.names: list[str] = []
        self.arguments: list[str] | None = []

    def function(self) -> None:
        """The function's name, with its template arguments."""
        nested = self._take("N")
        while nested and self._next() in "rVK":
            self._at += 1
        while self._take("L") or self._next().isdigit():  # L: internal linkage
            self.names.append(self._source_name())
            more = nested and self._next() in "L0123456789"
            if more or self._next() == "I":
                self._remember("::".join(self.names))
            if not nested:
                break
        if self._next() == "I":
            self.arguments = None
            self.arguments = self._template_arguments()
        if nested and not self._take("E"):
            raise _NotUnderstood

    def parameters(self) -> tuple[str, ...]:
        """The parameters' types; a template's name is followed by the type that it returns."""
        if self.arguments:
            self._type()
        found = []
        while self._at < len(self._text):
            found.append(self._type())
        return () if found == ["void"] else tuple(found)

    def _type(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotUnderstood
        made = self._type_here()
        self._depth -= 1
        return made

    def _type_here(self) -> str:
        letter = self._next()
        if letter in _TYPES:
            self._at += 1
            return _TYPES[letter]
        if found := _SUBSTITUTE.match(self._text, self._at):
            self._at = found.end()
            known = self._known[int(found[1], 36) + 1 if found[1] else 0]
            return self._with_arguments(known)
        if found := _TEMPLATE.match(self._text, self._at):
            self._at = found.end()
            made = (self.arguments or [])[int(found[1]) + 1 if found[1] else 0]
        elif letter in "PRK":
            self._at += 1
            inner = self._type()
            if letter == "K":
                made = inner if inner.endswith("*") else f"const {inner}"
            else:
                made = f"{inner}*" if letter == "P" else f"{inner}&"
        elif letter.isdigit():
            made = self._source_name()
            self._remember(made)
            return self._with_arguments(made)
        elif letter == "N":
            return self._nested_type()
        else:
            raise _NotUnderstood
        self._remember(made)
        return made

    def _nested_type(self) -> str:
        self._at += 1
        made = ""
        while not self._take("E"):
            if self._next() == "I":
                made += f"<{', '.join(self._template_arguments())}>"
            elif found := _SUBSTITUTE.match(self._text, self._at):
                self._at = found.end()
                made = self._known[int(found[1], 36) + 1 if found[1] else 0]
                continue
            elif self._next().isdigit():
                made += ("::" if made else "") + self._source_name()
            else:
                raise _NotUnderstood
            self._remember(made)
        return made

    def _with_arguments(self, name: str) -> str:
        if self._next() != "I":
            return name
        made = f"{name}<{', '.join(self._template_arguments())}>"
        self._remember(made)
        return made

    def _template_arguments(self) -> list[str]:
        self._at += 1
        found = []
        while not self._take("E"):
            if integer := _INTEGER.match(self._text, self._at):
                value = f"{'-' * bool(integer[2])}{integer[3]}"
                truth = {"0": "false", "1": "true"}.get(value, value)
                found.append(truth if integer[1] == "b" else value)
                self._at = integer.end()
            else:
                found.append(self._type())
        return found

    def _remember(self, made: str) -> None:
        if len(made) > _MAX_TEXT:
            raise _NotUnderstood
        self._known.append(made)

    def _source_name(self) -> str:
        length = _LENGTH.match(self._text, self._at)
        end = length.end() + int(length[0]) if length else 0
        if length is None or end > len(self._text):
            raise _NotUnderstood
        self._at = end
        return self._text[length.end() : end]

    def _next(self) -> str:
        """The next character, ``-`` at the end."""
        return self._text[self._at : self._at + 1] or "-"

    def _take(self, letter: str) -> bool:
        found = self._next() == letter
        self._at += found
        return found
