"""Writes the file of substitution rules that the library reads in the application.

A key and its values on each line; programs as :mod:`tuner.expressions.postfix` writes them. The
reader is ``native/rules.c``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import SpecError
from tuner.export.substitution import Source, SubstitutionRule


@dataclass(frozen=True, slots=True)
class TunedImage:
    """Where a variant's machine code is, and the kernel's name in it."""

    path: Path
    entry: str


def rules_text(rules: Sequence[tuple[SubstitutionRule, str, Sequence[TunedImage]]]) -> str:
    """The file's text, for rules with their kernel's name in the application and their images.

    Raises:
        SpecError: a name or path cannot be written on a line.
    """
    lines = [line for rule, name, images in rules for line in _rule(rule, name, images)]
    if any("\n" in line for line in lines):
        raise SpecError("a kernel's name or the path of a temporary folder has a line break")
    return "".join(f"{line}\n" for line in lines)


def _rule(rule: SubstitutionRule, name: str, images: Sequence[TunedImage]) -> Iterator[str]:
    yield f"kernel {name}"
    yield f"parameters {' '.join(map(str, rule.sizes))}"
    for symbol in rule.symbols:
        yield f"symbol {_source(symbol.source)} {symbol.divisor}"
    for source, program in rule.same:
        yield f"same {_source(source)} {program}"
    for index in rule.nulls:
        yield f"null {index}"
    for program in rule.domain:
        yield f"domain {program}"
    for one in rule.buffers:
        scaled = "scaled" if one.scaled else "plain"
        yield (
            f"buffer {one.parameter} {one.align} {one.kind} {one.element} {one.mode} {one.rtol!r} "
            f"{one.atol!r} {one.ulp} {scaled} {one.bytes}"
        )
    for launch, image in zip(rule.variants, images, strict=True):
        yield "variant"
        yield f"image {image.path}"
        yield f"entry {image.entry}"
        yield f"arguments {' '.join(map(str, launch.arguments))}"
        for program in launch.conditions:
            yield f"when {program}"
        for axis in range(3):
            yield f"grid {axis} {launch.grid[axis]}"
            yield f"block {axis} {launch.block[axis]}"
        yield f"shared {launch.shared_bytes}"
    for variant, program in rule.uses:
        yield f"use {0 if variant is None else variant + 1} {program}"


def _source(source: Source) -> str:
    sign = "unsigned" if source.unsigned else "signed"
    return f"{source.kind} {source.index} {source.at} {source.size} {sign}"
