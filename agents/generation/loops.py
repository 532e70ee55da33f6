"""Mechanical rule: how far loops are unrolled. It never changes the order of operations."""

import re
from dataclasses import replace

from agents.generation.draft import Draft
from tuner.csource.kernels import KernelSource, called_functions
from tuner.experiment.model import Experiment
from tuner.printable import counted

_NUMERIC = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t(]+(\d+)\)?[ \t]*$", re.MULTILINE)
_LOOPS = ("for_statement", "for_range_loop", "while_statement", "do_statement")
_PRAGMA_BEFORE = re.compile(r"#[ \t]*pragma[^\n]*\n\s*(?:#[ \t]*endif[ \t]*\n\s*)?\Z")
_BARRIER = re.compile(r"\b(?:barrier|work_group_barrier)\s*\(")
_FACTORS = (0, 2, 4, 8)
_NOTHING = (
    "none is unrolled: that takes an innermost `for` directly between braces, `{ for … }`, without "
    "a pragma before it or, in OpenCL, a barrier in it"
)


def unroll(draft: Draft, experiment: Experiment) -> Draft:
    """Turn numeric unroll pragmas into a parameter, and give innermost loops one.

    Loops of the functions that the kernel calls count too.
    """
    kernel = draft.kernel
    if kernel is None:
        return draft.noted("loops", "the kernel's definition was not recognised")
    name = draft.fresh("UNROLL", experiment)
    pragma = f"#if {name} > 0\n#pragma unroll {name}\n#endif"
    bodies = [node for node in (kernel.block, *called_functions(kernel)) if node is not None]
    numeric = [
        match
        for node in bodies
        for match in _NUMERIC.finditer(draft.source, node.start_byte, node.end_byte)
    ]
    own = {int(match[1]) for match in numeric}
    edits = {(*match.span(), pragma) for match in numeric}
    source = draft.source
    for at in _bare_loops(kernel):
        starts_line = at == 0 or source[at - 1] == "\n"
        edits.add((at, at, f"{pragma}\n" if starts_line else f"\n{pragma}\n"))
    if not edits:
        some = any(list(kernel.tree.find(*_LOOPS, within=body)) for body in bodies)
        return draft.noted("loops", _NOTHING if some else "the kernel has none")
    for first, last, text in sorted(edits, reverse=True):
        source = source[:first] + text + source[last:]
    values = tuple(sorted({*_FACTORS, *own}))
    return (
        replace(draft, source=source)
        .with_parameter(name, values)
        .noted(
            name,
            f"iterations of {counted(len(edits), 'loop')} may overlap; 0 lets the compiler decide",
        )
    )


def _bare_loops(kernel: KernelSource) -> list[int]:
    """Where to write the pragma of each innermost ``for`` that has none.

    At the start of its line, or before it where another statement or a brace precedes it there.
    A loop inside that has a pragma of its own does not count. In OpenCL loops with a barrier are
    left alone: it keeps their iterations apart, so that unrolling lets nothing overlap.
    """
    source = kernel.source
    bodies = [body for body in (kernel.block, *called_functions(kernel)) if body is not None]
    loops = [loop for body in bodies for loop in kernel.tree.find(*_LOOPS, within=body)]
    bare = [loop for loop in loops if not _PRAGMA_BEFORE.search(source[: loop.start_byte])]
    places = []
    for loop in bare:
        line = source.rfind("\n", 0, loop.start_byte) + 1
        in_block = loop.parent is not None and loop.parent.type == "compound_statement"
        before = source[line : loop.start_byte].strip()
        alone = in_block and (not before or before[-1] in "{};")
        if kernel.language == "opencl" and _BARRIER.search(source, loop.start_byte, loop.end_byte):
            continue
        inside = range(loop.start_byte + 1, loop.end_byte)
        if alone and loop.type.startswith("for") and not any(b.start_byte in inside for b in bare):
            places.append(loop.start_byte if before else line)
    return places
