"""Mechanical rule: several neighbouring elements in one access, where alignment is promised.

For kernels whose work-items read and write arrays at their own index only, such as ``out[i]``. Each
work-item takes ``VEC`` of them: whole vectors are loaded before and stored after, and past the last
whole vector elements are done one by one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agents.generation.dialect import Dialect
from agents.generation.draft import Draft
from tuner.csource.kernels import KernelSource, Parameter
from tuner.experiment.arguments import item_bytes, kernel_arguments
from tuner.experiment.model import Experiment

_MOST_BYTES = 16
"""The widest access of one thread."""


@dataclass(frozen=True, slots=True)
class VectorAccess:
    """Arrays that are accessed at ``index`` only, and the most elements of each at once.

    ``bound`` is the end of the index; empty if there is none.
    """

    arrays: tuple[Parameter, ...]
    index: str
    bound: str
    widths: tuple[int, ...]


def vector_access(
    draft: Draft, experiment: Experiment, kernel: KernelSource, index: str, bound: str
) -> VectorAccess | None:
    """What a kernel could access in vectors; ``None`` if nothing.

    ``index`` is the variable that holds the global index throughout, below ``bound``.
    """
    names = [parameter.name for parameter in kernel.signature.parameters]
    words = set(re.findall(r"[A-Za-z_]\w*", bound))
    code = kernel.code(kernel.body)
    changed = any(re.search(rf"\b{word}\s*(?:[-+*/]?=(?!=)|--|\+\+)", code) for word in words)
    if not index or changed or not words <= set(names):
        return None
    launch = draft.launch
    passed = (launch and launch.arguments) or kernel_arguments(experiment)
    arguments = {argument.name: argument for argument in experiment.arguments}
    arrays, most = [], []
    for parameter, name in zip(kernel.signature.parameters, passed, strict=False):
        argument = arguments.get(name)
        if argument is None or argument.align is None or parameter.dtype is None:
            continue
        item = item_bytes(parameter.dtype)
        lanes = min(argument.align, _MOST_BYTES) // item
        plain = parameter.pointer and parameter.lanes == 1 and parameter.dtype == argument.dtype
        own = re.findall(rf"\b{parameter.name}\s*\[\s*{index}\s*\]", code)
        uses = re.findall(rf"(?<!\.)\b{parameter.name}\b", code)
        addressed = re.search(rf"(?<!&)&\s*{parameter.name}\b", code)
        plain = plain and not addressed and "volatile" not in kernel.code(kernel.parameters)
        if plain and lanes > 1 and own and len(own) == len(uses) and not argument.strides:
            arrays.append(parameter)
            most.append(lanes)
    if not arrays:
        return None
    widths = tuple(width for width in (1, 2, 4, 8, 16) if width <= min(most))
    return VectorAccess(tuple(arrays), index, bound, widths)


def vector_source(
    kernel: KernelSource, access: VectorAccess, words: Dialect, name: str, vec: str
) -> str:
    """The functions that do one vector, by the name of the one that does one element."""
    listed = kernel.text(kernel.parameters).strip()
    names = [parameter.name for parameter in kernel.signature.parameters]
    lanes = ", ".join(f"{array.type}& kw_lane_{array.name}" for array in access.arrays)
    passed = ", ".join((*names, *(f"kw_of_{a.name}.at[kw_lane]" for a in access.arrays)))
    loads, stores = _copies(kernel, access)
    lines = [
        f"#if {vec} > 1",
        f"template <typename T, int N> struct alignas(N * sizeof(T)) {name}_pack {{ T at[N]; }};",
        f"{words.helper} {name}_lane({listed}, {lanes}, {words.index_type} kw_index) {{"
        + _lane_body(kernel, access, words)
        + "}",
        f"{words.helper} {name}_vector({listed}, {words.index_type} kw_index) {{",
    ]
    if access.bound:
        past = f"static_cast<long long>(kw_index) + {vec} > static_cast<long long>({access.bound})"
        lines += [
            f"  if ({past}) {{",
            f"    for (int kw_lane = 0; kw_lane < {vec}; ++kw_lane)",
            f"      {name}({', '.join(names)}, kw_index + kw_lane);",
            "    return;",
            "  }",
        ]
    lines += [f"  {name}_pack<{a.type}, {vec}> kw_of_{a.name};" for a in access.arrays]
    lines += [
        f"  kw_of_{a.name} = *reinterpret_cast<const {name}_pack<{a.type}, {vec}>*>"
        f"({a.name} + kw_index);"
        for a in loads
    ]
    lines += [
        "#pragma unroll",
        f"  for (int kw_lane = 0; kw_lane < {vec}; ++kw_lane)",
        f"    {name}_lane({passed}, kw_index + kw_lane);",
    ]
    lines += [
        f"  *reinterpret_cast<{name}_pack<{a.type}, {vec}>*>({a.name} + kw_index) = kw_of_{a.name};"
        for a in stores
    ]
    return "\n".join([*lines, "}", "#endif", ""])


def _lane_body(kernel: KernelSource, access: VectorAccess, words: Dialect) -> str:
    """The kernel's body with elements of the arrays in place of accesses to them."""
    begin, end = kernel.body
    alternatives = "|".join(array.name for array in access.arrays)
    pattern = re.compile(
        rf"(?P<index>{words.global_index})|\b(?P<array>{alternatives})\s*\[\s*{access.index}\s*\]"
    )
    pieces, last = [], begin
    for match in pattern.finditer(kernel.code(kernel.body)):
        new = f"kw_lane_{match['array']}" if match["array"] else words.index_from(match["index"])
        pieces += [kernel.source[last : begin + match.start()], new]
        last = begin + match.end()
    return "".join([*pieces, kernel.source[last:end]])


def _copies(
    kernel: KernelSource, access: VectorAccess
) -> tuple[Sequence[Parameter], Sequence[Parameter]]:
    """The arrays to load and to store.

    One that is written is loaded too, unless each element surely is: by a plain assignment that no
    condition but the bound's precedes.
    """
    code = kernel.code(kernel.body)
    loads, stores = [], []
    conditions = len(re.findall(r"\b(?:if|for|while|do|switch|return|goto)\b", code))
    direct = conditions <= (2 if re.search(r"\breturn\b", code) else 1) * bool(access.bound)
    for array in access.arrays:
        access_of = rf"\b{array.name}\s*\[\s*{access.index}\s*\]\s*"
        uses = len(re.findall(access_of, code))
        assigned = len(re.findall(access_of + r"=(?!=)", code))
        updated = access_of + r"(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
        written = re.search(rf"{updated}|(?:\+\+|--)\s*{access_of}", code)
        if written:
            stores.append(array)
        if not written or not direct or uses != assigned:
            loads.append(array)
    return loads, stores
