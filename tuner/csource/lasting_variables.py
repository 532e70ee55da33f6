"""Which variables of OpenCL C code keep their values from launch to launch.

Those of the file itself, and static ones of functions, unless they are constant. Macros are
expanded; every branch of a condition is read.
"""

from collections.abc import Iterator, Sequence

from tuner.csource.expansion import expanded

_CONSTANT = {"constant", "__constant"}
_NO_VARIABLE = {"typedef", "extern", "using"}
_TAGGED = {"struct", "union", "enum"}


def lasting_variables(source: str) -> tuple[str, ...]:
    """Their names, sorted.

    Raises:
        SpecError: the code does not end to expand.
    """
    found: set[str] = set()
    for line in expanded(source):
        found.update(_of_file(line))
        found.update(_static(line))
    return tuple(sorted(found))


def _of_file(words: Sequence[str]) -> Iterator[str]:
    """Variables that are declared outside functions."""
    declared: list[str] = []
    depth = 0
    for word in words:
        if word in ("}", ")", "]"):
            depth -= 1
            if depth == 0 and word == "}" and "(" in declared and "=" not in declared:
                declared = []
                continue
        if depth == 0:
            if word == ";":
                yield from _variable(declared)
                declared = []
            else:
                declared.append(word)
        if word in ("{", "(", "["):
            depth += 1


def _static(words: Sequence[str]) -> Iterator[str]:
    """Variables that are declared static."""
    for place, word in enumerate(words):
        if word == "static":
            declared: list[str] = []
            for other in words[place:]:
                if other in (";", "=", "[", "("):
                    break
                declared.append(other)
            if other != "(":
                yield from _variable(declared)


def _variable(declared: Sequence[str]) -> Iterator[str]:
    """The name in a declaration, less what lies in brackets; nothing if it declares a function."""
    words = []
    for word in declared:
        if word in ("=", ","):
            break
        words.append(word)
    while "__attribute__" in words:
        at = words.index("__attribute__")
        del words[at : at + 3]
    names = [word for word in words if word[0].isalpha() or word[0] == "_"]
    if len(names) < 2 or "(" in words or not _CONSTANT.isdisjoint(names):
        return
    if names[0] in _NO_VARIABLE or (names[0] in _TAGGED and words[-1] in ("}", names[1])):
        return
    yield names[-1]
