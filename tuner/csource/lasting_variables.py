"""Which variables of OpenCL C code keep their values from launch to launch.

Those of the file itself, and static ones of functions, unless they are constant. Macros are
expanded; every branch of a condition is read. A declaration that is nothing else, such as a type or
a prototype of a function that is defined, counts as a variable.
"""

from collections.abc import Iterable, Iterator, Sequence, Set

from tuner.csource.conditionals import balanced_readings

_CONSTANT = {"constant", "__constant"}
_TAGGED = {"struct", "union", "enum"}
_PARENTHESISED = {"__attribute__", "__attribute", "typeof", "__typeof__", "__typeof", "_Alignas"}
"""Words of a declaration before a pair of parentheses that is neither a function's nor a name's."""
_OPENING, _CLOSING = {"{", "["}, {"}", "]"}


def lasting_variables(source: str) -> tuple[str, ...]:
    """Their names, sorted; ``?`` alone if braces match in no way to read the conditionals.

    Raises:
        SpecError: the code does not end to expand.
    """
    found: set[str] = set()
    readings = tuple(balanced_readings(source))
    if not readings:
        return ("?",)
    for line in readings:
        words = _without_parenthesised(line)
        declarations, functions = _of_file(words)
        for declared in (*declarations, *_static(words)):
            found.update(_variable(declared, functions))
    return tuple(sorted(found))


def _without_parenthesised(words: Sequence[str]) -> list[str]:
    """The words, less what attributes and the like are given; a type remains of ``typeof``."""
    found: list[str] = []
    depth, after = 0, False
    for word in words:
        after = after or (depth == 0 and bool(found) and found[-1] in _PARENTHESISED)
        if after:
            depth += (word == "(") - (word == ")")
            after = depth > 0
            if not after and "attribute" in found[-1]:
                found.pop()
            elif not after:
                found[-1] = "typeof_"
            continue
        found.append(word)
    return found


def _of_file(words: Sequence[str]) -> tuple[list[list[str]], set[str]]:
    """Declarations outside functions, less what braces and brackets hold, and what is defined."""
    found, functions = [], set[str]()
    declared: list[str] = []
    within = 0
    in_function = False
    for word in words:
        if word in _CLOSING:
            within = max(0, within - 1)
            if in_function and within == 0:
                in_function = False
                functions.add(declared[declared.index("(") - 1])
                declared = []
                continue
        if within == 0:
            if word == "{":
                in_function = "(" in declared and declared[-1] == ")"
            if word == ";":
                found.append(declared)
                declared = []
            else:
                declared.append(word)
        within += word in _OPENING
    return found, functions


def _static(words: Sequence[str]) -> Iterator[list[str]]:
    """Declarations within functions that are static, less what braces and brackets hold."""
    depth = 0
    for place, word in enumerate(words):
        depth += (word == "{") - (word == "}")
        if word == "static" and depth and words[place - 1] != "[":
            yield _declaration(words[n] for n in range(place + 1, len(words)))


def _declaration(words: Iterable[str]) -> list[str]:
    """The words up to a semicolon, or another ``static``, less what braces and brackets hold."""
    declared: list[str] = []
    within = 0
    for word in words:
        within -= word in ("}", "]")
        if within <= 0:
            if word in (";", "static"):
                break
            declared.append(word)
        within += word in ("{", "[")
    return declared


def _variable(declared: Sequence[str], functions: Set[str]) -> Iterator[str]:
    """The name in a declaration, unless it declares a function, a type or constants alone."""
    first, *others = _declarators(declared)
    names = [word for word in first if word.isidentifier()]
    if not names or names[0] == "typedef" or _is_tag(first):
        return
    if "(" in first and not others and first[-1] == ")":
        function = first[first.index("(") - 1]
        if function in functions:
            return
    if not _CONSTANT.isdisjoint(names) and all(map(_is_constant, (first, *others))):
        return
    yield names[-1]


def _declarators(declared: Sequence[str]) -> list[list[str]]:
    """What is declared, one by one, without initial values; the first with its specifiers."""
    found: list[list[str]] = [[]]
    depth, initial = 0, False
    for word in declared:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            found.append([])
            initial = False
            continue
        initial = initial or (word == "=" and depth == 0)
        if not initial:
            found[-1].append(word)
    return found


def _is_tag(words: Sequence[str]) -> bool:
    """Whether a declaration is that of a structure, a union or an enumeration alone."""
    tag = [word for word in words if word not in ("{", "}")]
    return tag[0] in _TAGGED and len(tag) <= 2 and (words[-1] == "}" or len(words) == 2)


def _is_constant(declarator: Sequence[str]) -> bool:
    """Whether what is declared is constant: of pointers the pointer, not what it points to."""
    if "*" not in declarator:
        return True
    last = len(declarator) - 1 - list(reversed(declarator)).index("*")
    return not _CONSTANT.isdisjoint(declarator[last:])
