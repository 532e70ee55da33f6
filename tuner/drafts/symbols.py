"""Symbols of a first spec: names that are free, usual sizes, and text for YAML."""

import json
import keyword
import re
from collections.abc import Container

from tuner.expressions import RESERVED

_AMBIGUOUS = frozenset({"on", "off", "yes", "no", "true", "false", "null"})
_USUAL = (
    (r"(?:num_|n_?)?(?:q_|kv_|qo_)?heads?|nh", 32),
    (r"head_?(?:size|dim)|hs|hd", 128),
    (r"(?:num_)?experts?|e", 64),
    (r"top_?k|k", 2),
    (r"b|batch(?:_?size)?", 8),
    (r"(?:num_)?tokens|t|seq_?len|nnz", 512),
    (r"block_?size|page_?size", 16),
    (r"(?:hidden|inner)\w*|d|c|v|cols?|width\w*|w|pitch|stride\w*", 2048),
    (r"rows?|height\w*|h|outer\w*", 1024),
    (r"n|len\w*|size|\w*count|num\w*|\w*elements", 1 << 20),
)
_OTHER_SIZE = 512
END = "nnz"
"""The symbol of where the last segment ends."""
PER_SEGMENT = 8
"""Elements of a segment, where nothing says how many."""
INDEX_DTYPES = frozenset({"int32", "int64", "uint32", "uint64", "int16", "uint16"})
"""Element types of arrays that may hold indices."""


def free_name(name: str, taken: Container[str]) -> str:
    """The name itself, or one like it that the spec language leaves free."""
    reserved = name in RESERVED or name == "weight" or keyword.iskeyword(name)
    return f"{name}_" if reserved or name in taken else name


def usual_size(name: str) -> int:
    """A size that something of this name often has."""
    for pattern, size in _USUAL:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return size
    return _OTHER_SIZE


def usual_value(name: str) -> str | None:
    """A floating-point value that something of this name often has, as a spec writes it."""
    return "1.0e-05" if re.fullmatch(r"(?:\w+_)?eps(?:ilon)?", name, re.IGNORECASE) else None


def quoted(text: str) -> str:
    """The text as YAML that is read as this text."""
    plain = text.replace("_", "").replace(".", "").isalnum() and text.lower() not in _AMBIGUOUS
    return text if (plain and not text[0].isdigit()) or text == "1" else json.dumps(text)


def comment_text(text: str) -> str:
    """Text on one line, for a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
