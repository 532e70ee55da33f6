"""C++ types as an application's files define them: element types, and constants of classes."""

import re
from collections.abc import Mapping

from tuner.csource.host_program import HostProgram, split
from tuner.csource.kernels import element_type

MAX_STEPS = 6
"""Names that stand for names, followed in a row."""

_DTYPE = re.compile(r"(?:u?int|b?float)(?:8|16|32|64)(?:_e\dm\d)?")
"""A dtype of this program: ``float16`` is a half here, not the vector of OpenCL."""

_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b([^\n]*)", re.MULTILINE)


def resolved_type(
    program: HostProgram, name: str, types: Mapping[str, str], steps: int = MAX_STEPS
) -> tuple[str | None, int]:
    """Element type and lanes of a type, through typedefs; ``types`` binds template parameters.

    Of several definitions, the one whose condition names a macro that the files define counts.
    """
    name = types.get(name, name)
    found = element_type(name)
    if found[0] or not steps:
        return found
    base = re.escape(name.rpartition("::")[2])
    pattern = re.compile(
        rf"\btypedef\s+([\w: ]+?)\s+{base}\s*;|\busing\s+{base}\s*=\s*([\w: ]+?)\s*;"
    )
    meant = [
        (_holds(program, code, match.start()), match[1] or match[2])
        for code in program.code.values()
        for match in pattern.finditer(code)
    ]
    macro = program.macros.get(name)
    if macro and macro.parameters is None:
        meant.append((True, macro.body))
    for _, type_ in sorted(meant, key=lambda one: not one[0]):
        if type_ != name:
            return resolved_type(program, type_, types, steps - 1)
    return None, 1


def type_bytes(program: HostProgram, name: str, types: Mapping[str, str]) -> int | None:
    """The size of a type by its name in C++ or CUDA, or of a dtype; ``None`` if it is unknown."""
    known = _DTYPE.fullmatch(name)
    dtype, lanes = (name, 1) if known else resolved_type(program, name, types)
    if dtype is None or dtype == "bool":
        return 1 if dtype else None
    return lanes * int(re.findall(r"\d+", dtype)[0]) // 8


def class_bindings(program: HostProgram, name: str) -> Mapping[str, str]:
    """The template arguments that an alias such as ``using x128 = Packed<half>`` binds, by name."""
    for code in program.code.values():
        word = re.escape(name)
        alias = re.search(rf"\busing\s+{word}\s*=\s*(\w+)\s*<([^;]*)>\s*;", code)
        alias = alias or re.search(rf"\btypedef\s+(\w+)\s*<([^;]*)>\s*{word}\s*;", code)
        if alias:
            for other in program.code.values():
                head = re.search(
                    rf"\btemplate\s*<([^<>]*)>\s*(?:struct|class)[^;{{}}]*\b{alias[1]}\b", other
                )
                if head:
                    names = [part.split()[-1] for part in split(head[1]) if part.split()]
                    return dict(zip(names, split(alias[2]), strict=False))
    return {}


def _holds(program: HostProgram, code: str, place: int) -> bool:
    """Whether the innermost condition around a place names a macro that is defined, or none."""
    stack: list[str] = []
    for found in _CONDITION.finditer(code, 0, place):
        if found[1] in ("if", "ifdef", "ifndef"):
            stack.append(found[2])
        elif found[1] == "endif":
            stack = stack[:-1]
        elif stack:
            stack[-1] = found[2] if found[1] == "elif" else ""
    words = re.findall(r"[A-Za-z_]\w*", stack[-1]) if stack else []
    return any(word in program.macros for word in words if word != "defined")
