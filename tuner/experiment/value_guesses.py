"""Guesses about arguments that are passed by value but are no single number."""

from collections.abc import Container, Mapping

from tuner.backends.registry import traits_of
from tuner.csource.kernels import KernelSource, Parameter
from tuner.csource.structs import StructMember, struct_members
from tuner.experiment.guesses import ArgumentGuess
from tuner.experiment.model import ITEM_BYTES
from tuner.experiment.symbols import INDEX_DTYPES, quoted


def vector_align(kernel: KernelSource, dtype: str, lanes: int) -> int:
    """The alignment of a vector type, in bytes."""
    return traits_of(kernel.language).vector_align(ITEM_BYTES[dtype], lanes)


def struct_guess(
    kernel: KernelSource, name: str, parameter: Parameter, sizes: Container[str]
) -> ArgumentGuess:
    """A vector or a struct by value: its fields where the source defines it, or else one byte.

    An integer field named as one of the ``sizes`` has its value.
    """
    members = struct_members(kernel.tree, parameter.type)
    if parameter.dtype:
        members = (StructMember("value", parameter.dtype, parameter.lanes, parameter.lanes),)
    fields: Mapping[str, str] = {"kind": "struct", "bytes": '"00"'}
    why = f"the bytes of '{parameter.type}', which is not understood"
    if members is not None:
        listed = ", ".join(_member(kernel, member, sizes) for member in members)
        fields, why = {"kind": "struct", "fields": f"[{listed}]"}, "the values"
    return ArgumentGuess(name=name, fields=fields, why=why, confidence="low")


def _member(kernel: KernelSource, member: StructMember, sizes: Container[str]) -> str:
    values = ", ".join("0" * member.count)
    align = ""
    if member.lanes > 1:
        align = f", align: {vector_align(kernel, member.dtype, member.lanes)}"
    value = f"[{values}]" if member.count > 1 else values
    if member.count == 1 and member.dtype in INDEX_DTYPES and member.name in sizes:
        value = quoted(member.name)
    return f"{{name: {quoted(member.name)}, dtype: {member.dtype}, value: {value}{align}}}"
