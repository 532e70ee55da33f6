"""Guesses about arguments that are passed by value but are no single number."""

from collections.abc import Mapping

from tuner.backends.registry import traits_of
from tuner.csource.kernels import KernelSource, Parameter
from tuner.csource.structs import StructMember, struct_members
from tuner.experiment.guesses import ArgumentGuess
from tuner.experiment.model import ITEM_BYTES
from tuner.experiment.symbols import quoted


def vector_align(kernel: KernelSource, dtype: str, lanes: int) -> int:
    """The alignment of a vector type, in bytes."""
    return traits_of(kernel.language).vector_align(ITEM_BYTES[dtype], lanes)


def struct_guess(kernel: KernelSource, name: str, parameter: Parameter) -> ArgumentGuess:
    """A vector or a struct by value: its fields where the source defines it, or else one byte."""
    members = struct_members(kernel.tree, parameter.type)
    if parameter.dtype:
        members = (StructMember("value", parameter.dtype, parameter.lanes, parameter.lanes),)
    fields: Mapping[str, str] = {"kind": "struct", "bytes": '"00"'}
    why = f"the bytes of '{parameter.type}', which is not understood"
    if members is not None:
        listed = ", ".join(_member(kernel, member) for member in members)
        fields, why = {"kind": "struct", "fields": f"[{listed}]"}, "the values"
    return ArgumentGuess(name=name, fields=fields, why=why, confidence="low")


def _member(kernel: KernelSource, member: StructMember) -> str:
    values = ", ".join("0" * member.count)
    align = ""
    if member.lanes > 1:
        align = f", align: {vector_align(kernel, member.dtype, member.lanes)}"
    value = f"[{values}]" if member.count > 1 else values
    return f"{{name: {quoted(member.name)}, dtype: {member.dtype}, value: {value}{align}}}"
