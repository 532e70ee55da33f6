"""Names of CUDA kernels in binaries: C++ names as the Itanium C++ ABI mangles them.

Reads what names of kernels hold: namespaces, and template arguments that are numbers, built-in
types or named types. What goes beyond is left out rather than misread.
"""

import re

_PREFIX = re.compile(r"_Z(?P<nested>N[rVK]*)?")
_NAME = re.compile(r"\d+")
_INTEGER = re.compile(r"L([a-z])(n?)(\d+)E")
_TYPES = {
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "f": "float",
    "d": "double",
}


def base_name(symbol: str) -> str:
    """The function's own name: ``kernel`` for ``_ZN2ns6kernelIfEEvPT_``; C names as they are."""
    return _read(symbol)[0][-1]


def source_name(symbol: str) -> str:
    """The name as source writes it, such as ``ns::kernel<float, 4>``.

    Template arguments that are not understood are left out together, as are unnamed namespaces.
    """
    names, place, _ = _read(symbol)
    arguments, _ = _template_arguments(symbol, place)
    visible = "::".join(name for name in names if not name.startswith("_GLOBAL__N_"))
    return visible + (f"<{', '.join(arguments)}>" if arguments else "")


def _read(symbol: str) -> tuple[list[str], int, bool]:
    """The names from the outermost to the function's, and where its template arguments begin."""
    found = _PREFIX.match(symbol)
    names: list[str] = []
    if found is None:
        return [symbol], len(symbol), False
    place, nested = found.end(), found["nested"] is not None
    while length := _NAME.match(symbol, place):
        end = length.end() + int(length[0])
        if end > len(symbol):
            break
        names.append(symbol[length.end() : end])
        place = end
        if not nested:
            break
    return names or [symbol], place, nested


def _template_arguments(symbol: str, place: int) -> tuple[list[str], int]:
    """The arguments of the list that begins at ``place``, and where it ends; none if unclear."""
    if symbol[place : place + 1] != "I":
        return [], place
    place += 1
    arguments: list[str] = []
    while symbol[place : place + 1] not in ("E", ""):
        letter = symbol[place]
        if integer := _INTEGER.match(symbol, place):
            value = f"{'-' * bool(integer[2])}{integer[3]}"
            truth = {"0": "false", "1": "true"}.get(value, value)
            arguments.append(truth if integer[1] == "b" else value)
            place = integer.end()
        elif letter in _TYPES:
            arguments.append(_TYPES[letter])
            place += 1
        elif letter.isdigit() or letter == "N":
            names, after, nested = _read(f"_Z{symbol[place:]}")
            end = place + after - 2
            if nested and symbol[end : end + 1] != "E":
                return [], place
            arguments.append("::".join(names))
            place = end + nested
        else:
            return [], place
    return arguments, place + 1
