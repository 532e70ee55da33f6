"""What the host says about a launch's arguments: allocations, constants and assertions."""

import re
from collections.abc import Iterator
from dataclasses import replace

from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_program import arguments
from tuner.csource.host_values import MAX_CALLERS, Scope

MAX_STEPS = 4
"""Callers, and names set to names, that are followed in a row."""

_CAST = re.compile(r"\(\s*(?:const\s+)?[\w:]+(?:\s*[*&])*\s*\)\s*(?=[A-Za-z_(])|&(?=\w)")
_STATIC_CAST = re.compile(r"(?:static|reinterpret)_cast\s*<[^<>]*(?:<[^<>]*>)?[^<>]*>\s*\((.*)\)")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?")
_DIVISIBLE = re.compile(r"(.+?)%(.+?)==0")


def without_casts(text: str) -> str:
    """An argument without the casts and address operators around it."""
    text = text.strip()
    while found := _STATIC_CAST.fullmatch(text):
        text = found[1].strip()
    return _CAST.sub("", text).strip()


def allocated(
    scope: Scope, pointer: str, item_bytes: int, steps: int = MAX_STEPS
) -> Polynomial | None:
    """The elements that the host allocates for a pointer, in the function itself or a caller."""
    if not re.fullmatch(r"\w+", pointer):
        return None
    pattern = re.compile(rf"\bcudaMalloc\w*\s*\([^,;]*?&\s*{pointer}\b[^,;]*,")
    for call in pattern.finditer(scope.local):
        given = arguments(scope.local, scope.local.index("(", call.start()))
        value = scope.value(given[1]) if len(given) > 1 else None
        if value is not None:
            return value // Polynomial.number(item_bytes)
    for caller, passed in _callers(scope) if steps else ():
        if pointer in passed:
            found = allocated(caller, without_casts(passed[pointer]), item_bytes, steps - 1)
            if found is not None:
                return found
    return None


def float_constant(scope: Scope, text: str, steps: int = MAX_STEPS) -> str | None:
    """A floating-point constant of the application, as a spec writes it."""
    text = without_casts(text)
    if _NUMBER.fullmatch(text):
        return str(float(text.rstrip("fF")))
    if text in ("true", "false"):
        return str(int(text == "true"))
    if not steps or not re.fullmatch(r"[A-Za-z_]\w*", text):
        return None
    found = scope.definition(text)
    if found is None and scope.function and text in scope.function.parameters:
        for caller, passed in _callers(scope):
            value = float_constant(caller, passed.get(text, ""), steps - 1)
            if value is not None:
                return value
        return None
    found = found or scope.program.definition(text)
    return float_constant(scope, found, steps - 1) if found and found != text else None


def asserted_divisions(scope: Scope) -> Iterator[tuple[Polynomial, Polynomial]]:
    """Values and their divisors, where the host asserts before the launch that no rest is left."""
    for call in re.finditer(r"\b(?:assert|TORCH_CHECK|CHECK)\s*\(", scope.local):
        given = arguments(scope.local, call.end() - 1)
        match = _DIVISIBLE.fullmatch(re.sub(r"\s", "", given[0])) if given else None
        if match:
            value, divisor = scope.value(match[1]), scope.value(match[2])
            if value is not None and divisor is not None:
                yield value, divisor


def _callers(scope: Scope) -> Iterator[tuple[Scope, dict[str, str]]]:
    """The callers of the enclosing function, with what each passes for its parameters.

    What a caller calls by another name has the value of the parameter that it is passed for.
    """
    function = scope.function
    if function is None:
        return
    for call in scope.program.calls(function.name)[:MAX_CALLERS]:
        around = scope.program.enclosing(call.file, call.place)
        if around is None or around == function:
            continue
        passed = dict(zip(function.parameters, function.defaults, strict=True))
        passed |= dict(zip(function.parameters, call.arguments, strict=False))
        known = {}
        for name, text in passed.items():
            value = scope.value(name)
            if value is not None and re.fullmatch(r"[A-Za-z_][\w.]*", text):
                known[text] = value
        program = scope.program.seen_from(call.file)
        local = program.code[call.file][around.body[0] : call.place]
        yield replace(scope, program=program, function=around, local=local, known=known), passed
