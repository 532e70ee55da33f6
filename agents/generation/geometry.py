"""Mechanical rule: the block size of each axis, and how many elements each work-item does.

Each axis is varied only if the text shows that the result does not depend on its block size. Three
kinds of kernel are recognised; ``total`` is the baseline's grid × block.

*Global*: work-items read only their global index and do not communicate. Any block size covers the
same indices. If the kernel first returns for indices past the end, the last block may overhang;
otherwise the sizes must divide ``total``. One work-item can also do several elements.

*Strided*: the same, in a loop that steps by the number of work-items. Any grid is correct.

*Cooperative*: the block reads its own size in a loop. A smaller block takes more iterations, so the
baseline's expression is capped. The number of blocks stays, so it must not depend on their size.
"""

import math
import re
from collections import deque
from dataclasses import replace

from agents.generation.block_sizes import divides, multiplies, stands_for, steps_by
from agents.generation.dialect import Dialect, dialect
from agents.generation.draft import Draft
from agents.generation.vectors import VectorAccess, vector_access, vector_source
from tuner.backends.registry import traits_of
from tuner.csource.kernels import KernelSource, called_code, reachable_code
from tuner.experiment.model import Experiment, Launch
from tuner.expressions import Expression

_AXES = "xyz"
_COMMUNICATES = re.compile(
    r"\b(?:barrier|work_group_\w+|sub_group_\w+|local|__local|async_work_group\w*|mem_fence|"
    r"__shared__|__syncthreads\w*|__syncwarp|__shfl\w*|__ballot\w*|__any\w*|__all\w*|"
    r"__reduce\w*|__activemask|__match\w*|cooperative_groups|asm)\b"
)
_RETURN = re.compile(r"\{\s*return\s*;\s*\}|return\s*;")
_OWN_BOUNDS = re.compile(
    r"__launch_bounds__\s*\([^()]*\)"
    r"|__attribute__\s*\(\(\s*(?:__)?(?:reqd_work_group_size|work_group_size_hint)(?:__)?"
    r"\s*\([^()]*\)\s*\)\)"
)
_COMPARISON = r"(?<![\w\s])\s*\(([^()&|?]*)\)(?=\s*(?:&&|\|\||$))"
_RESIDENT = (1, 2, 4)
_THREADS_PER_BLOCK = 1024
_THREADS_PER_MULTIPROCESSOR = 2048


def geometry(draft: Draft, experiment: Experiment) -> Draft:
    """Make the block size of each axis a parameter where that is safe, and coarsen axis 0."""
    launch = draft.launch
    if launch is None or draft.kernel is None:
        return draft.noted("launch", "the kernel's definition was not recognised")
    if draft.shared:
        return draft.noted("launch", "the kernel is launched more than once")
    if launch.cooperative:
        return draft.noted("launch", "a cooperative launch is left as it is")
    names = {name for name, _ in draft.parameters}
    for axis, block in reversed(list(enumerate(launch.block))):
        if given := block.names & names:
            already = f"already varied by {', '.join(sorted(given))}"
            draft = draft.noted(f"block[{axis}]", already)
        elif axis == 0 or block.text != "1":
            draft = _axis(draft, experiment, axis)
    return _bounds(draft, experiment)


def _axis(draft: Draft, experiment: Experiment, axis: int) -> Draft:
    """Vary one axis if it is of one of the three kinds; what the kernel calls is read too."""
    assert draft.kernel is not None
    code = reachable_code(draft.kernel, [text for _, text in experiment.kernel.headers])
    words = dialect(experiment.kernel.language, axis)
    rest = re.sub(words.global_index, " ", code)
    knows_global = rest != code
    if knows_global and not _COMMUNICATES.search(code):
        if not re.search(words.other, rest):
            return _global(draft, experiment, axis, words)
        if not re.search(words.other, re.sub(words.grid_size, " ", rest)):
            return _strided(draft, experiment, axis, words)
    if knows_global or re.search(words.grid_size, code):
        why = (
            "work-items communicate, or read more than their global index, so that the result may "
            "depend on the block size"
        )
        return _untuned(draft, axis, why)
    if re.search(words.block_size, code):
        return _cooperative(draft, experiment, axis, words, code)
    why = "the kernel does not ask for its block size, so it may rely on it"
    return _untuned(draft, axis, why)


def _untuned(draft: Draft, axis: int, why: str) -> Draft:
    return draft.noted(f"block[{axis}]", f"not tuned: {why}")


def _global(draft: Draft, experiment: Experiment, axis: int, words: Dialect) -> Draft:
    kernel, launch = draft.kernel, draft.launch
    assert kernel is not None
    assert launch is not None
    guarded, total = _guard(kernel, words), _total(launch, axis)
    block = _block_name(draft, experiment, axis)
    draft = draft.with_parameter(block, _sizes(launch, axis, words))
    covered = block
    items, strided = draft.fresh("ITEMS", experiment), draft.fresh("STRIDED", experiment)
    source = None
    if axis == 0:
        called = called_code(kernel, [text for _, text in experiment.kernel.headers])
        vec = draft.fresh("VEC", experiment)
        access = None
        if words.grammar == "cuda":
            index, bound = guarded or (_index(kernel, words), "")
            access = vector_access(draft, experiment, kernel, index, bound)
        source = _coarsened(kernel, called, words, block, items, strided, vec, access)
    if source is not None:
        covered = f"{block} * {items}"
        if access is not None:
            covered += f" * {vec}"
            arrays = ", ".join(array.name for array in access.arrays)
            draft = draft.with_parameter(vec, access.widths).noted(
                vec, f"neighbouring elements of {arrays} in one access, as their alignment allows"
            )
        draft = (
            replace(draft, source=source)
            .with_parameter(items, (1, 2, 4, 8))
            .with_parameter(strided, (False, True))
            .with_constraint(f"{items} > 1 and {block} > 1 or not {strided}")
            .noted(items, f"elements per work-item: neighbours, or with {strided} a block apart")
        )
    if guarded is None:
        draft = draft.with_constraint(f"({total}) % ({covered}) == 0")
    ending = "those past the end return at once" if guarded else "the sizes must divide the total"
    draft = _with_axis(draft, axis, f"ceil_div({total}, {covered})", block)
    return draft.noted(
        block, f"work-items know only their global index and do not communicate; {ending}"
    )


def _strided(draft: Draft, experiment: Experiment, axis: int, words: Dialect) -> Draft:
    launch = draft.launch
    assert launch is not None
    block, turns = _block_name(draft, experiment, axis), draft.fresh("TURNS", experiment)
    grid = f"ceil_div({_total(launch, axis)}, {block} * {turns})"
    return (
        _with_axis(draft, axis, grid, block)
        .with_parameter(block, _sizes(launch, axis, words))
        .with_parameter(turns, (1, 2, 4, 8))
        .noted(block, "a loop strides by the whole grid, so any grid covers all elements")
        .noted(turns, "how many times fewer work-items there are than in the baseline")
    )


def _cooperative(
    draft: Draft, experiment: Experiment, axis: int, words: Dialect, code: str
) -> Draft:
    launch = draft.launch
    assert launch is not None
    own = launch.block[axis].text
    if not steps_by(words.block_size, code):
        why = "no loop steps by the block size, so a smaller block may leave elements out"
        return _untuned(draft, axis, why)
    if own.isdecimal() and stands_for(int(own), code):
        why = f"a number in the source may stand for its size, {own}"
        return _untuned(draft, axis, why)
    fixed = [int(size.text) for size in launch.block if size.text.isdecimal()]
    most = int(own) if own.isdecimal() else _THREADS_PER_BLOCK // math.prod(fixed)
    sizes = tuple(size for size in words.cooperative_sizes if size < most)
    if not sizes:
        return _untuned(draft, axis, "it cannot be smaller than it is")
    grid = launch.grid[axis].text if axis < len(launch.grid) else "1"
    if divides(grid, own, code) or multiplies(words.group_index, words.block_size, code):
        return _untuned(draft, axis, "the number of blocks may depend on their size")
    block = _block_name(draft, experiment, axis)
    text = block if own.isdecimal() else f"min({own}, {block})"
    return (
        _with_axis(draft, axis, grid, text)
        .with_parameter(block, (*sizes, most))
        .noted(block, "the block asks for its own size, so a smaller one does the same")
    )


def _block_name(draft: Draft, experiment: Experiment, axis: int) -> str:
    assert draft.launch is not None
    flat = all(block.text == "1" for block in draft.launch.block[1:])
    return draft.fresh("BLOCK" if flat else f"BLOCK_{_AXES[axis].upper()}", experiment)


def _sizes(launch: Launch, axis: int, words: Dialect) -> tuple[int, ...]:
    own = launch.block[axis].text
    return tuple(sorted({*words.global_sizes, *([int(own)] if own.isdecimal() else [])}))


def _total(launch: Launch, axis: int) -> str:
    grid = launch.grid[axis].text if axis < len(launch.grid) else "1"
    return f"{_factor(grid)} * {_factor(launch.block[axis].text)}"


def _factor(text: str) -> str:
    return text if re.fullmatch(r"\w+|ceil_div\([\w ,*]+\)", text) else f"({text})"


def _with_axis(draft: Draft, axis: int, grid: str, block: str) -> Draft:
    assert draft.launch is not None
    missing = [Expression.constant(1)] * (axis + 1 - len(draft.launch.grid))
    grids, blocks = [*draft.launch.grid, *missing], list(draft.launch.block)
    grids[axis], blocks[axis] = Expression.parse(grid), Expression.parse(block)
    return draft.with_launch(replace(draft.launch, grid=tuple(grids), block=tuple(blocks)))


def _index(kernel: KernelSource, words: Dialect) -> str:
    """The variable that holds the global index throughout; empty if there is none."""
    index, rest = "", deque(kernel.block.named_children if kernel.block else ())
    while rest and not index:
        text = kernel.tree.text(rest.popleft())
        assigned = rf"\b(\w+)\s*=\s*(?:\([\w ]+\)\s*)?\(?\s*{words.global_index}\s*\)?\s*[;,]"
        named = re.search(assigned, text)
        index = named[1] if named and "{" not in text else ""
    changed = (
        rf"\b{index}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)\s*{index}\b|\b{index}\s*(?:\+\+|--)"
    )
    return index if index and len(re.findall(changed, kernel.code(kernel.body))) == 1 else ""


def _guard(kernel: KernelSource, words: Dialect) -> tuple[str, str] | None:
    """The index and its end, if the body first returns past it, or is all inside a test of it."""
    index = _index(kernel, words)
    rest = deque(kernel.block.named_children if kernel.block and index else ())
    while rest and not re.search(rf"\b{index}\s*=(?!=)", kernel.tree.text(rest[0])):
        rest.popleft()
    rest = deque(list(rest)[1:])
    while rest:
        statement = rest.popleft()
        text = kernel.tree.text(statement)
        condition = statement.child_by_field_name("condition")
        then = statement.child_by_field_name("consequence")
        if statement.type != "if_statement" or condition is None or then is None:
            if re.search(r"[{}]|\b(?:for|while|do)\b", text):
                return None
            continue
        if statement.child_by_field_name("alternative"):
            return None
        tested = re.sub(_COMPARISON, r"\1", kernel.tree.text(condition)[1:-1])
        if not _RETURN.fullmatch(kernel.tree.text(then)):
            below = "" if "||" in tested else _end(tested.split("&&"), rf"{index}\s*<(?!<|=)")
            whole = not rest and then.type in ("compound_statement", "expression_statement")
            return (index, below) if below and whole else None
        if "&&" not in tested and (end := _end(tested.split("||"), rf"{index}\s*>=")):
            return index, end
    return None


def _end(parts: list[str], pattern: str) -> str:
    """What an index is compared with, in the first part that does."""
    return next(
        (m[1].strip() for p in parts if (m := re.fullmatch(rf"{pattern}(.*)", p.strip()))), ""
    )


def _coarsened(
    kernel: KernelSource,
    called: str,
    words: Dialect,
    block: str,
    items: str,
    strided: str,
    vec: str,
    access: VectorAccess | None,
) -> str | None:
    """The source with the kernel's body as a function that each work-item calls ``items`` times."""
    signature = kernel.signature
    names = [parameter.name for parameter in signature.parameters]
    element = f"{kernel.name}_element"
    begin, end = kernel.body
    elsewhere = re.search(words.other, called)
    if "template" in kernel.code(kernel.head) or not signature.certain or elsewhere:
        return None
    own = kernel.code(kernel.parameters) + kernel.code(kernel.body)
    if re.search(r"\bkw_\w+", own + called) or re.search(rf"\b{element}", kernel.source):
        return None
    pieces, last = [], begin
    for match in re.finditer(words.global_index, kernel.code(kernel.body)):
        pieces += [kernel.source[last : begin + match.start()], words.index_from(match[0])]
        last = begin + match.end()
    body = "".join([*pieces, kernel.source[last:end]])
    parameters = kernel.text(kernel.parameters).strip()
    group, item = words.group, words.item
    vectors = vector_source(kernel, access, words, element, vec) if access else ""
    passed = ", ".join((*names, "kw_index"))
    listed = ", ".join(part for part in (parameters, f"{words.index_type} kw_index") if part)
    return (
        kernel.source[: kernel.head[0]]
        + f"{words.helper} {element}({listed}) {{{body}}}\n\n"
        + vectors
        + kernel.source[kernel.head[0] : begin]
        + f"\n{words.loop_pragma}"
        + f"  for (int kw_item = 0; kw_item < {items}; ++kw_item) {{\n"
        + f"    {words.index_type} kw_index = {strided}\n"
        + f"        ? ({group} * {items} + kw_item) * {block} + {item}\n"
        + f"        : ({group} * {block} + {item}) * {items} + kw_item;\n"
        + _called(element, passed, vec if access else None)
        + "  }\n"
        + kernel.source[end:]
    )


def _called(element: str, passed: str, vec: str | None) -> str:
    """The call that does what one index stands for: an element, or a vector of them."""
    if vec is None:
        return f"    {element}({passed});\n"
    return (
        f"#if {vec} > 1\n    {element}_vector({passed} * {vec});\n"
        f"#else\n    {element}({passed});\n#endif\n"
    )


def _bounds(draft: Draft, experiment: Experiment) -> Draft:
    """Tell the compiler the block size: exactly in OpenCL, as an upper bound in CUDA."""
    kernel, launch = draft.kernel, draft.launch
    assert kernel is not None
    assert launch is not None
    traits = traits_of(draft.language)
    exact = traits.block_size_attribute == "exact"
    parameters = {name for name, _ in draft.parameters}
    if not any(block.names & parameters for block in launch.block):
        return draft
    head = _OWN_BOUNDS.sub(" ", kernel.text(kernel.head))
    sizes = [_bound(block, exact=exact) for block in launch.block]
    attribute = ""
    if None not in sizes:
        if exact:
            axes = [*map(str, sizes), "1", "1"][:3]
            attribute = f" __attribute__((reqd_work_group_size({', '.join(axes)})))"
        else:
            resident = draft.fresh("RESIDENT", experiment)
            threads = " * ".join(map(str, sizes))
            attribute = f" __launch_bounds__({threads}, {resident})"
            limit = f"{threads} * {resident} <= {_THREADS_PER_MULTIPROCESSOR}"
            draft = (
                replace(draft, bounded=True)
                .with_parameter(resident, _RESIDENT)
                .with_constraint(f"{resident} == 1 or {limit}")
                .noted(resident, "launch bounds: so many blocks share a multiprocessor's registers")
            )
    qualifier = rf"\b(?:{'|'.join(traits.kernel_qualifiers)})\b"
    head = re.sub(qualifier, lambda found: found[0] + attribute, head, count=1)
    begin, end = kernel.head
    return replace(draft, source=kernel.source[:begin] + head + kernel.source[end:])


def _bound(block: Expression, *, exact: bool) -> str | None:
    """A block axis as C, if it is a number, a parameter or (unless exact) capped by one."""
    if re.fullmatch(r"\w+", block.text):
        return block.text
    capped = re.fullmatch(r"min\(.*, (\w+)\)", block.text)
    return capped[1] if capped and not exact else None
