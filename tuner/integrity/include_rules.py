"""Include rules: which files a candidate's source may name, checked before each compile."""

import re

from tuner.csource.expansion import spliced

_SPACE = r"(?:[ \t\v\f]|/\*(?:[^*]|\*(?!/))*\*/)*"
_INCLUDE = re.compile(rf"\#{_SPACE}(?:include_next|include|import|embed)\b{_SPACE}(?P<what>[^\n]*)")
_NAMED = re.compile(r"""(?:<([^<>"\n]+)>|"([^"\n]+)")""")

_ASKS = re.compile(r"\b__has_(?:include|include_next|embed)\b([^\n]*)")
_PLAIN = re.compile(
    r"""\s*\(\s*(?:<(?![/~])(?!.*\.\.)[^<>:"\n]+>|"(?![/~])(?!.*\.\.)[^":\n]+")\s*\)"""
)


def include_violation(file: str, text: str) -> str | None:
    """The message for the first ``#include`` that is not allowed, or ``None``.

    Only plain relative names are allowed, so that nothing outside the compiler's include folders
    can be read. Comments and strings are searched too: an attack would hide an include where a
    compiler and this rule disagree on what a comment is, and honest sources have none there.
    """
    joined = spliced(text)
    for found in _ASKS.finditer(joined):
        if not _PLAIN.match(found[1]):
            return f"{file}: {found[0].strip()}: ask for plain names only"
    for found in _INCLUDE.finditer(joined):
        named = _NAMED.match(found["what"])
        if named is None:
            return f"{file}: an include must name its file: {found[0].strip()}"
        name = named[1] or named[2]
        if name.startswith(("/", "\\", "~")) or ":" in name or ".." in re.split(r"[/\\]", name):
            return (
                f"{file}: #include {named[0]} leaves the toolchain and the experiment's "
                "include_dirs: name the file relative to one of them"
            )
    return None
