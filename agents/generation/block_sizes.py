"""What a kernel and its grid say of the block size: what steps by, multiplies or divides by it."""

import re

_STEP = re.compile(r"\+=\s*((?:[^;(){}\[\]]|\([^()]*\))*)")
_NUMBER = re.compile(r"(?<![\w.])(\d+)[uU]?\b")
_TURNS = r"\bfor\s*\(\s*\w+\s+(\w+)\s*=\s*0\s*;\s*\1\s*<\s*"


def steps_by(block_size: str, code: str) -> bool:
    """Whether some loop advances by the block size, or by a variable computed from it.

    So does one that counts its turns, if their number is divided by the block size.
    """
    derived = [block_size]
    assignments = re.findall(r"\b(\w+)\s*=\s*([^=;][^;]*);", code)
    while True:
        sized = re.compile("|".join(derived))
        if any(sized.search(step) for step in _STEP.findall(code)):
            return True
        divided = [name for name, value in assignments if sized.search(value.rpartition("/")[2])]
        if any(re.search(rf"{_TURNS}{name}\s*;", code) for name in divided):
            return True
        more = {rf"\b{name}\b" for name, value in assignments if sized.search(value)}
        if more <= set(derived):
            return False
        derived += sorted(more - set(derived))


def divides(grid: str, own: str, code: str) -> bool:
    """Whether a grid axis may divide by the block size, or by a multiple that the code lacks."""
    if not own.isdecimal():
        return re.search(rf"(?<!\w){re.escape(own)}(?!\w)", grid) is not None
    numbers = [] if grid.isdecimal() else re.findall(r"\b\d+\b", grid)
    written = set(_NUMBER.findall(code))
    return any(int(number) and int(number) % int(own) == 0 for number in {*numbers} - written)


def multiplies(group_index: str, block_size: str, code: str) -> bool:
    """Whether the block's index is multiplied by its size, or by variables that hold them."""
    group, size = (
        "|".join((word, *(rf"\b{name}\b" for name in re.findall(held.format(word), code))))
        for word, held in (
            (group_index, r"\b(\w+)\s*=[^;,=+\-*/%\[]*{}[\s)]*[;,]"),
            (block_size, r"\b(\w+)\s*=[^;,=/\[]*{}[^;,=/\[]*[;,]"),
        )
    )
    between = r"[^;,+\-=<>?:\[\]{}]*"
    return any(
        re.search(rf"(?:{one})[\s)]*\*{between}(?:{other})", code)
        for one, other in ((group, size), (size, group))
    )


def stands_for(size: int, code: str) -> bool:
    """Whether the block size or its half is written out, other than as the length of an array."""
    without_lengths = re.sub(r"\[\s*\d+\s*\]", "", code)
    numbers = _NUMBER.findall(without_lengths)
    return size > 2 and any(int(number) in (size, size // 2) for number in numbers)
