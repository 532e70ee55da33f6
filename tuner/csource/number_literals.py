"""The values of whole numbers as C and C++ write them in host code."""

import math
import re

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|0[0-7']*|[1-9][\d']*)[uUlL]*")
_WHOLE = re.compile(r"(\d+)\.0*[fFlL]?")
_POWER = re.compile(r"(\d+(?:\.\d*)?[eE]\d+)")


def whole_number(text: str) -> int | None:
    """The value of a literal: hexadecimal, octal, decimal, ``4.0f`` or ``1e6``; else ``None``.

    Raises:
        OverflowError: it is beyond float64.
    """
    if found := _INTEGER.fullmatch(text):
        digits = found[1].replace("'", "")
        octal = len(digits) > 1 and digits.isdecimal() and digits[0] == "0"
        return int(digits, 8 if octal else 0)
    if found := _WHOLE.fullmatch(text):
        return int(found[1])
    if not _POWER.fullmatch(text):
        return None
    if math.isinf(value := float(text)):
        raise OverflowError(text)
    return int(value)
