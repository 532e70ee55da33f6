"""One axis of the launch in each kernel language: patterns to find, text to write."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tuner.backends.registry import traits_of
from tuner.backends.traits import Grammar

_AXES = "xyz"
_OPENCL_INDEX_TYPES = "int", "unsigned int", "unsigned", "uint", "long", "ulong", "size_t"
"""What indices are cast to in OpenCL C. Of two in a sum, the later here is the sum's type."""
_NOT_PART_OF_MORE = "".join(rf"(?<![-*/%~!)]\s{{{spaces}}})" for spaces in range(9))
"""Behind an operator that binds as closely as a product, or a cast, an index is not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One axis in one grammar.

    ``global_index``, ``group_index``, ``block_size`` and ``grid_size`` (in work-items) are
    patterns; ``other`` matches any mention of the axis. ``group`` and ``item`` are the block's and
    the work-item's index within it, of ``index_type``. The sizes are those worth trying on any
    device.
    """

    grammar: Grammar
    global_index: str
    group_index: str
    block_size: str
    grid_size: str
    other: str
    index_type: str
    group: str
    item: str
    helper: str
    loop_pragma: str
    global_sizes: tuple[int, ...]
    cooperative_sizes: tuple[int, ...]

    def index_from(self, written: str) -> str:
        """The work-item's index, of the type that ``written`` (a global index) has."""
        if self.grammar == "opencl":
            casts = re.findall(r"\(\s*([a-z_ ]+?)\s*\)", written)
            all_cast = len(casts) == len(re.findall(r"\bget_", written))
            widest = max(casts, key=_OPENCL_INDEX_TYPES.index) if all_cast else "size_t"
            return "kw_index" if widest == "size_t" else f"(({widest})kw_index)"
        cast = re.search(
            r"\(\s*([\w ]+?)\s*\)\s*(?:block|thread)(?:Idx|Dim)"
            r"|(\w+)\s*\(\s*(?:block|thread)(?:Idx|Dim)|static_cast\s*<([\w :]+)>",
            written,
        )
        name = next(filter(None, cast.groups()), "") if cast else ""
        return f"(({name or 'unsigned int'})kw_index)"


def dialect(language: str, axis: int) -> Dialect:
    """The words of a backend for axis 0, 1 or 2."""
    return _DIALECTS[traits_of(language).grammar](axis)


def _product(one: str, other: str) -> str:
    return rf"(?:{one}\s*\*\s*{other}|{other}\s*\*\s*{one})"


def _written_out(group: str, size: str, item: str) -> str:
    """A global index that is computed: block × block size + work-item, in any order."""
    product = _product(group, size)
    sums = (
        rf"{product}\s*\+\s*{item}",
        rf"(?<![\w>\]])(?<![\w>\]]\s)\(\s*{product}\s*\)\s*\+\s*{item}",
        rf"{item}\s*\+\s*(?:{product}|\(\s*{product}\s*\))",
    )
    return rf"{_NOT_PART_OF_MORE}(?:{'|'.join(sums)})(?!\s*[*/%])"


def _opencl(axis: int) -> Dialect:
    def call(name: str) -> str:
        return rf"\b{name}\s*\(\s*{axis}\s*\)"

    def cast(name: str) -> str:
        return rf"(?:\(\s*(?:{'|'.join(_OPENCL_INDEX_TYPES)})\s*\)\s*)?{call(name)}"

    group, size = cast("get_group_id"), cast("get_local_size")
    computed = _written_out(group, size, cast("get_local_id"))
    return Dialect(
        grammar="opencl",
        global_index=rf"(?:{call('get_global_id')}|{computed})",
        group_index=call("get_group_id"),
        block_size=call("get_local_size"),
        grid_size=rf"(?:{call('get_global_size')}|{_product(cast('get_num_groups'), size)})",
        other=r"\bget_(?:global_id|local_id|local_size|enqueued_local_size|group_id|num_groups"
        rf"|global_size|global_offset|global_linear_id|local_linear_id)\s*\(\s*(?:{axis}\b|[^\d\s])",
        index_type="size_t",
        group=f"get_group_id({axis})",
        item=f"get_local_id({axis})",
        helper="static inline void",
        loop_pragma="",
        global_sizes=(1, 2, 4, 8, 16) if axis else (1, 4, 16, 64, 256, 1024),
        cooperative_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    )


def _cuda(number: int) -> Dialect:
    axis = _AXES[number]

    def cast(word: str) -> str:
        return (
            rf"(?:\(\s*[\w ]+\s*\)\s*{word}|\b\w+\s*\(\s*{word}\s*\)"
            rf"|\bstatic_cast\s*<[\w :]+>\s*\(\s*{word}\s*\)|\b{word})"
        )

    index, size = rf"blockIdx\.{axis}\b", rf"blockDim\.{axis}\b"
    thread = rf"threadIdx\.{axis}\b"
    return Dialect(
        grammar="cuda",
        global_index=_written_out(cast(index), cast(size), cast(thread)),
        group_index=rf"\b{index}",
        block_size=rf"\b{size}",
        grid_size=_product(cast(size), cast(rf"gridDim\.{axis}\b")),
        other=rf"\b(?:blockIdx|blockDim|threadIdx|gridDim)\b(?!\.[{_AXES.replace(axis, '')}]\b)",
        index_type="unsigned long long",
        group=f"static_cast<unsigned long long>(blockIdx.{axis})",
        item=f"threadIdx.{axis}",
        helper="static __device__ __forceinline__ void",
        loop_pragma="#pragma unroll\n",
        global_sizes=(32, 64, 128, 256, 512, 1024) if axis == "x" else (1, 2, 4, 8, 16),
        cooperative_sizes=(32, 64, 128, 256, 512) if axis == "x" else (1, 2, 4, 8, 16),
    )


_DIALECTS: dict[Grammar, Callable[[int], Dialect]] = {"opencl": _opencl, "cuda": _cuda}
