"""C-like source as text without comments, and as a syntax tree.

One grammar, CUDA's, reads both languages: what it does not know (OpenCL's qualifiers, attributes)
is blanked at equal length first, so every place in the tree is a place in the source. Text that
the grammar does not understand makes ``ERROR`` nodes, never a failure.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from tuner.backends.registry import traits_of

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_CHARACTERS = 1 << 18
MAX_SECONDS = 2.0
MAX_NESTING = 200
"""Sources longer, slower to parse or with deeper brackets have no tree. The longest of 540 public
kernel files has 110,000 characters and takes 0.1 s; no function there nests 20 brackets."""

_QUALIFIERS = {
    "opencl": r"(?:__)?(?:kernel|global|local|constant|private|generic|read_only|write_only"
    r"|read_write)|restrict",
    "cuda": r"(?:__launch_bounds__|__maxnreg__|__cluster_dims__)\s*\((?:[^()]|\([^()]*\))*\)"
    r"|__(?:global|device|host|shared|constant|managed|grid_constant|restrict|noinline"
    r"|forceinline|inline_hint)__|__restrict",
}
_OPENCL = re.compile(rf"\b(?:{_QUALIFIERS['opencl']})(?!\w)")
_ATTRIBUTE = r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)"
_ALIGNED = r"(?:__align__|alignas)\s*\([^()]*\)"
_SPECIFIER = r"inline|static|extern|const|volatile|__inline|__restrict"

_HIDDEN = re.compile(
    r"""//(?:\\\r?\n|[^\n])*        # goes on after a backslash
    | /\*.*?(?:\*/|\Z)
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | (?<![\w$])\d(?:'?\w|\.)*      # the ' of 1'000 opens no literal""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_OBJECT_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(?![\w(])((?:[^\n\\]|\\\r?\n)*)", re.MULTILINE
)
_REPEATED = re.compile(r"([^\w\s])(?:\s*\1){99}")


def without_comments(source: str) -> str:
    """The source with comments and the contents of literals turned to spaces, at equal length."""
    return _HIDDEN.sub(_hidden, source)


def without_directives(source: str) -> str:
    """:func:`without_comments`, and preprocessor directives turned to spaces too."""
    return _DIRECTIVE.sub(_spaces, without_comments(source))


def without_qualifiers(source: str, language: str) -> str:
    """The source as CUDA's grammar reads it: OpenCL's qualifiers turned to spaces."""
    grammar = traits_of(language).grammar
    return source if grammar == "cuda" else _OPENCL.sub(_spaces, source)


def object_macros(source: str) -> dict[str, frozenset[str]]:
    """The macros without parameters, and everything that each stands for anywhere in the source.

    None if the source is longer than :data:`MAX_CHARACTERS`.
    """
    if len(source) > MAX_CHARACTERS:
        return {}
    found: dict[str, set[str]] = defaultdict(set)
    for name, body in _OBJECT_MACRO.findall(without_comments(source)):
        found[name].add(re.sub(r"\\\r?\n", " ", body).strip())
    return {name: frozenset(bodies) for name, bodies in found.items()}


def is_truncated(source: str) -> bool:
    """Whether the source surely ends too early: in a comment, a conditional or a block.

    False if the source is longer than :data:`MAX_CHARACTERS`.
    """
    if len(source) > MAX_CHARACTERS:
        return False
    lines: list[str] = []
    skipping: list[bool] = []
    for line in without_comments(source).split("\n"):
        directive = re.match(r"[ \t]*#[ \t]*(if|el|endif)", line)
        if directive is None:
            if not any(skipping):
                lines.append(line)
        elif directive[1] == "if":
            skipping.append(False)
        elif skipping:  # of the branches of a conditional, the first stands for all
            skipping.pop()
            if directive[1] == "el":
                skipping.append(True)
    code = _DIRECTIVE.sub(_spaces, "\n".join(lines))
    comments = (match[0] for match in _HIDDEN.finditer(source) if match[0].startswith("/*"))
    in_comment = any(len(comment) < 4 or not comment.endswith("*/") for comment in comments)
    return bool(skipping) or code.count("{") > code.count("}") or in_comment


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed source: its :func:`without_directives`, and the root node.

    ``root`` is ``None`` if the source is beyond the bounds of this module; ``code`` is empty if it
    is longer than :data:`MAX_CHARACTERS`.
    """

    code: str
    root: "Node | None"

    def find(self, *types: str, within: "Node | None" = None) -> "Iterator[Node]":
        """The nodes of these types, in the source's order."""
        start = within or self.root
        if start is None:
            return
        cursor = start.walk()
        while True:
            node = cursor.node
            if node is not None and node.type in types:
                yield node
            if not cursor.goto_first_child():
                while not cursor.goto_next_sibling():
                    if not cursor.goto_parent():
                        return

    def begin(self, place: int) -> int:
        """Where the declaration around a place begins: behind the last brace or semicolon."""
        return max(self.code.rfind(mark, 0, place) for mark in ";{}") + 1

    def text(self, node: "Node") -> str:
        """The code of a node."""
        return self.code[node.start_byte : node.end_byte]


def inner_declarator(node: "Node", kind: str) -> "Node | None":
    """The innermost declarator of a declaration that is of this kind, if there is one."""
    inner = node.child_by_field_name("declarator")
    while inner is not None and inner.type != kind:
        inner = inner.child_by_field_name("declarator")
    return inner


def parse(source: str, language: str) -> Tree:
    """The tree of a source; both branches of every ``#if`` are in it."""
    if len(source) > MAX_CHARACTERS:
        return Tree("", None)
    code = without_directives(source)
    brackets = ({"(": 1, "{": 1, "[": 1}.get(mark, -1) for mark in re.findall(r"[][(){}]", code))
    deep = max(accumulate(brackets), default=0) > MAX_NESTING
    if deep or _REPEATED.search(code):
        return Tree(code, None)
    from tree_sitter import Parser

    data = _plain(code, object_macros(source), traits_of(language).grammar).encode()
    end = time.thread_time() + MAX_SECONDS  # of this thread, however busy the machine is
    try:
        tree = Parser(_grammar()).parse(
            lambda offset, _: data[offset : offset + 65536],
            progress_callback=lambda *_: time.thread_time() > end,
        )
    except ValueError:  # out of time
        return Tree(code, None)
    return Tree(code, tree.root_node)


def parse_expression(text: str) -> "tuple[Node, Tree] | None":
    """The node of an expression of CUDA C++, and its tree; ``None`` if it is no expression."""
    tree = parse(f"auto _ = {text};", "cuda")
    declared = next(tree.find("init_declarator"), None)
    value = declared.child_by_field_name("value") if declared else None
    return (value, tree) if value else None


def _plain(code: str, macros: Mapping[str, frozenset[str]], grammar: str) -> str:
    """The code as the grammar knows it: less qualifiers, attributes, and macros for these."""
    unknown = re.compile(rf"{_ATTRIBUTE}|{_ALIGNED}|\b(?:{_QUALIFIERS[grammar]})(?!\w)")
    qualifying = re.compile(rf"(?:{unknown.pattern}|\b(?:{_SPECIFIER})\b|\s)*")
    named = {name for name, bodies in macros.items() if all(map(qualifying.fullmatch, bodies))}
    code = re.sub(
        r"[A-Za-z_]\w*", lambda word: _spaces(word) if word[0] in named else word[0], code
    )
    return unknown.sub(_spaces, re.sub(r"[^\t\n -~]", "_", code))


@cache
def _grammar() -> "Language":
    import tree_sitter_cuda
    from tree_sitter import Language

    return Language(tree_sitter_cuda.language())


def _hidden(match: re.Match[str]) -> str:
    found = match[0]
    if found[0].isdigit():
        return found
    inside = re.sub(r"[^\n]", " ", found[1:-1])
    return f"{found[0]}{inside}{found[-1]}" if found[0] in "\"'" else _spaces(match)


def _spaces(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
