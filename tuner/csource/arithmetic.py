"""Integer arithmetic over names, as C computes it and specs write it.

A value is a polynomial over *atoms*: names, and terms that are no polynomials, such as
``ceil_div(n, 256)``, written as the spec language writes them. Sizes are taken as positive.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Quotient:
    """One value divided by another, rounded down, or up."""

    numerator: "Polynomial"
    denominator: "Polynomial"
    up: bool

    def __str__(self) -> str:
        if self.up:
            return f"ceil_div({self.numerator}, {self.denominator})"
        return f"{_operand(self.numerator)} // {_operand(self.denominator)}"


Atom = str | Quotient
Monomial = tuple[Atom, ...]
_ONE: Monomial = ()


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products of atoms; ``terms`` has each product's factor, never 0."""

    terms: Mapping[Monomial, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, terms: Mapping[Monomial, int]) -> "Polynomial":
        """The sum of these terms."""
        return cls(MappingProxyType({atoms: n for atoms, n in terms.items() if n}))

    @classmethod
    def number(cls, value: int) -> "Polynomial":
        """A constant."""
        return cls.of({_ONE: value})

    @classmethod
    def atom(cls, atom: Atom) -> "Polynomial":
        """A name, or a term that is no polynomial."""
        return cls.of({(atom,): 1})

    @property
    def constant(self) -> int | None:
        """Its value, if it names nothing."""
        return None if set(self.terms) - {_ONE} else self.terms.get(_ONE, 0)

    @property
    def names(self) -> frozenset[str]:
        """The names in it."""
        words = re.findall(r"[A-Za-z_]\w*", str(self))
        return frozenset(words) - {"ceil_div", "min", "max", "if", "else"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and dict(self.terms) == dict(other.terms)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: "Polynomial") -> "Polynomial":
        terms = dict(self.terms)
        for atoms, n in other.terms.items():
            terms[atoms] = terms.get(atoms, 0) + n
        return Polynomial.of(terms)

    def __sub__(self, other: "Polynomial") -> "Polynomial":
        return self + other * Polynomial.number(-1)

    def __mul__(self, other: "Polynomial") -> "Polynomial":
        terms: dict[Monomial, int] = {}
        for left, n in self.terms.items():
            for right, m in other.terms.items():
                atoms = tuple(sorted(left + right, key=str))
                terms[atoms] = terms.get(atoms, 0) + n * m
        return Polynomial.of(terms)

    def __floordiv__(self, other: "Polynomial") -> "Polynomial":
        """C's division of sizes; ``(a + b - 1) / b`` becomes ``ceil_div(a, b)``."""
        if (exact := self.divided(other)) is not None:
            return exact
        a, b = self.constant, other.constant
        if a is not None and b:
            return Polynomial.number(int(a / b))
        rest = self - other + Polynomial.number(1)
        if _ONE in self.terms and rest.terms and len(rest.terms) < len(self.terms):
            return ceil_div(rest, other)
        if self.terms.get(_ONE) == -1:  # of a size, (a - 1) / b is ceil_div(a, b) - 1
            return ceil_div(self + Polynomial.number(1), other) - Polynomial.number(1)
        return Polynomial.atom(Quotient(self, other, up=False))

    def divided(self, other: "Polynomial") -> "Polynomial | None":
        """The quotient, if ``other`` is one product that every term has as a factor."""
        if len(other.terms) != 1:
            return None
        ((divisor, factor),) = other.terms.items()
        terms: dict[Monomial, int] = {}
        for atoms, n in self.terms.items():
            left = list(atoms)
            for atom in divisor:
                if atom not in left:
                    return None
                left.remove(atom)
            if n % factor:
                return None
            terms[tuple(left)] = n // factor
        return Polynomial.of(terms)

    def __str__(self) -> str:
        parts = []
        ordered = sorted(self.terms.items(), key=lambda one: (not one[0], one[1] < 0))
        for atoms, n in ordered:
            factors = [str(abs(n))] if abs(n) != 1 or not atoms else []
            single = len(factors) + len(atoms) == 1
            factors += [str(atom) if single else _grouped(str(atom)) for atom in atoms]
            parts.append(("- " if n < 0 else "+ ") + " * ".join(factors))
        text = " ".join(parts).removeprefix("+ ")
        return text.replace("- ", "-", 1) if text.startswith("- ") else text or "0"


def without_remainders(
    value: Polynomial,
) -> tuple[Polynomial, tuple[tuple[Polynomial, Polynomial], ...]]:
    """The value with ``c * (x // c)`` taken as ``x``, and each such ``x`` and ``c``."""
    found = []
    for _ in range(8):
        for atoms, n in value.terms.items():
            simpler = _without_remainder(atoms, n)
            if simpler:
                product, numerator, denominator = simpler
                found.append((numerator, denominator))
                value = value - Polynomial.of({atoms: n}) + product
                break
        else:
            break
    return value, tuple(dict.fromkeys(found))


def _without_remainder(
    atoms: Monomial, factor: int
) -> tuple[Polynomial, Polynomial, Polynomial] | None:
    for quotient in atoms:
        if isinstance(quotient, Quotient) and not quotient.up:
            left = list(atoms)
            left.remove(quotient)
            rest = Polynomial.of({tuple(left): factor}).divided(quotient.denominator)
            if rest is not None:
                return rest * quotient.numerator, quotient.numerator, quotient.denominator
    return None


def quotients(value: Polynomial) -> Iterator[Quotient]:
    """The divisions in a value, those inside them too."""
    for atoms in value.terms:
        for atom in atoms:
            if isinstance(atom, Quotient):
                yield atom
                yield from quotients(atom.numerator)
                yield from quotients(atom.denominator)


def ceil_div(a: Polynomial, b: Polynomial) -> Polynomial:
    """``a`` divided by ``b``, rounded up."""
    if (exact := a.divided(b)) is not None:
        return exact
    x, y = a.constant, b.constant
    if x is not None and y:
        return Polynomial.number(-(-x // y))
    return Polynomial.atom(Quotient(a, b, up=True))


def remainder(a: Polynomial, b: Polynomial) -> Polynomial:
    """C's ``a % b`` of sizes."""
    x, y = a.constant, b.constant
    if x is not None and y:
        return Polynomial.number(x % y)
    return Polynomial.atom(f"{_operand(a)} % {_operand(b)}")


def applied(function: str, *values: Polynomial) -> Polynomial:
    """``min`` or ``max`` of values."""
    numbers = [value.constant for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) == len(values):
        return Polynomial.number(min(known) if function == "min" else max(known))
    return Polynomial.atom(f"{function}({', '.join(map(str, values))})")


def _operand(value: Polynomial) -> str:
    """A value as an operand of a division."""
    text = str(value)
    return text if re.fullmatch(r"\w+|\w+\([^()]*\)", text) else f"({text})"


def _grouped(atom: str) -> str:
    """An atom as a factor."""
    depth, outer = 0, ""
    for mark in atom:
        depth += {"(": 1, ")": -1}.get(mark, 0)
        outer += "" if depth else mark
    return f"({atom})" if re.search(" (?://|%|if) ", outer) else atom
