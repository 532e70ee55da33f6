"""Guesses about what arguments hold: structs that are passed by value, and arrays of indices."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from tuner.backends.registry import traits_of
from tuner.csource.kernels import KernelSource, Parameter, element_type
from tuner.csource.structs import StructMember, struct_members
from tuner.drafts.guesses import ArgumentGuess
from tuner.drafts.symbols import END, INDEX_DTYPES, quoted, usual_value
from tuner.experiment.contents import MAX_FIELD_VALUES, MAX_STRUCT_FIELDS
from tuner.experiment.fields import MAX_STRUCT_BYTES
from tuner.experiment.model import ITEM_BYTES


def vector_align(kernel: KernelSource, dtype: str, lanes: int) -> int:
    """The alignment of a vector type, in bytes."""
    return traits_of(kernel.language).vector_align(ITEM_BYTES[dtype], lanes)


_POINTER_CAST = re.compile(r"[<(]\s*((?:\w+\s+)*?)(\w+)\s*(?:const\s*)?\*\s*(?:\w+\s*)?[>)]")


def cast_align(kernel: KernelSource, code: str) -> int:
    """The widest alignment, in bytes, of the vector types to whose pointers code casts; 1 if none.

    Args:
        kernel: whose language it is.
        code: the kernel's and that of all it calls.
    """
    types = (element_type(cast[2]) for cast in _POINTER_CAST.finditer(code))
    return max((vector_align(kernel, dtype, n) for dtype, n in types if dtype and n > 1), default=1)


def aligned(fields: dict[str, str], own: int, cast: int) -> str:
    """Give an array its alignment, where it is more than an element's; what to say of it.

    Args:
        fields: the array's; gets ``align``.
        own: the alignment of its element or vector type, in bytes.
        cast: of the vectors that the kernel takes pointers to arrays for.
    """
    item = ITEM_BYTES.get(fields["dtype"], 2)
    if max(own, cast) > item:
        fields["align"] = str(max(own, cast))
    return "; the kernel casts pointers to those of vectors" if cast > max(own, item) else ""


def index_contents(
    fields: dict[str, str], name: str, offset: str | None, used: str | None, last: str
) -> str:
    """Add what an array holds that is used as an index, and return why; else nothing.

    Args:
        fields: those of the array so far.
        name: the array.
        offset: an index of it, if its elements are where segments begin and end.
        used: where an element is an index, if one is.
        last: the size that such an element stays below.
    """
    if offset:
        fields["values"] = f"{{offsets: {END}}}"
        return f"; where segments begin and end: {name}[{offset} + 1]"
    if not used or fields["kind"] == "out" or fields["dtype"] not in INDEX_DTYPES:
        return ""
    fields["values" if fields["kind"] == "in" else "initial"] = f'{{integers: [0, "{last} - 1"]}}'
    return f"; an index: {used}"


def unknown_value(name: str, dtype: str) -> tuple[str, str]:
    """A value for a scalar whose value the application does not say, and why that one."""
    why = "the application's value is unknown"
    if (value := usual_value(name)) and not dtype.startswith(("int", "uint", "bool")):
        return value, f"{why}; usual for the name"
    return "1", why


def struct_guess(
    kernel: KernelSource, name: str, parameter: Parameter, sizes: Container[str]
) -> ArgumentGuess:
    """A vector or a struct by value: its fields where a spec can hold them, or else one byte.

    An integer field named as one of the ``sizes`` has its value.
    """
    members = struct_members(kernel.tree, parameter.type)
    if parameter.dtype:
        members = (StructMember("value", parameter.dtype, parameter.lanes, parameter.lanes),)
    if members is not None:
        members = tuple(_padded(kernel, member) for member in members)
    fields: Mapping[str, str] = {"kind": "struct", "bytes": '"00"'}
    why = f"the bytes of '{parameter.type}', which is not understood"
    if members is not None and not _is_specifiable(members):
        why = f"the bytes of '{parameter.type}': too many for fields"
    elif members is not None:
        listed = ", ".join(_member(kernel, member, sizes) for member in members)
        fields, why = {"kind": "struct", "fields": f"[{listed}]"}, "the values"
    return ArgumentGuess(name=name, fields=fields, why=why, confidence="low")


def _padded(kernel: KernelSource, member: StructMember) -> StructMember:
    """With as many elements as its vectors take in memory."""
    elements = traits_of(kernel.language).vector_elements(member.lanes)
    return replace(member, count=member.count // member.lanes * elements)


def _is_specifiable(members: Sequence[StructMember]) -> bool:
    """Whether a spec can hold a struct of these as fields."""
    size = sum(ITEM_BYTES[member.dtype] * member.count for member in members)
    most = max(member.count for member in members)
    few = len(members) <= MAX_STRUCT_FIELDS and most <= MAX_FIELD_VALUES
    return few and size <= MAX_STRUCT_BYTES


def _member(kernel: KernelSource, member: StructMember, sizes: Container[str]) -> str:
    values = ", ".join("0" * member.count)
    align = ""
    if member.lanes > 1:
        align = f", align: {vector_align(kernel, member.dtype, member.lanes)}"
    value = f"[{values}]" if member.count > 1 else values
    if member.count == 1 and member.dtype in INDEX_DTYPES and member.name in sizes:
        value = quoted(member.name)
    return f"{{name: {quoted(member.name)}, dtype: {member.dtype}, value: {value}{align}}}"
