import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.fences import Block, fenced


def block(text: str, language: str = "", line: int = 1, *, closed: bool = True) -> Block:
    return Block(language=language, text=text, line=line, closed=closed)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("no block", []),
        ("```\nx\n```", [block("x\n")]),
        ("a\n```c\nx\n```\nb", [block("x\n", "c", 2)]),
        ("```c++\nx\n```", [block("x\n", "c++")]),
        ("```CUDA title=k.cu\nx\n```", [block("x\n", "cuda")]),
        ("``` {.cpp}\nx\n```", [block("x\n", "cpp")]),
        ("```c\r\nx\r\ny\r\n```\r\n", [block("x\ny\n", "c")]),
        ("```c\rx\r```", [block("x\n", "c")]),
        ("~~~cl\n```\nx\n~~~", [block("```\nx\n", "cl")]),
        ("````md\n```c\nx\n```\n````", [block("```c\nx\n```\n", "md")]),
        ("```c\nx\n`````", [block("x\n", "c")]),
        ("  ```c\n  x\n  ```", [block("  x\n", "c")]),
        ("```c\nx\n```\n```json\n{}\n```", [block("x\n", "c"), block("{}\n", "json", 4)]),
        ("```c\nx", [block("x\n", "c", closed=False)]),
        ("```c\nx\n``", [block("x\n``\n", "c", closed=False)]),
        ("```c\nx\n```json\n{}\n```", [block("x\n```json\n{}\n", "c")]),
        ("```", [block("", closed=False)]),
        ("```c\n```", [block("", "c")]),
        ("`inline ``` x`", []),
    ],
)
def test_blocks_are_found_line_by_line(text: str, blocks: list[Block]) -> None:
    assert list(fenced(text).blocks) == blocks


def test_what_stands_outside_is_kept() -> None:
    assert fenced("a\n```\nx\n```\nb").outside == "a\nb"


@given(st.text(alphabet=st.sampled_from("`~ \r\nabc{}"), max_size=60))
def test_any_text_is_taken_apart(text: str) -> None:
    parts = fenced(text)
    assert all(found.closed for found in parts.blocks[:-1])
    assert sum(len(found.text) for found in parts.blocks) <= len(text) + 1


@given(st.lists(st.text(alphabet="ab`# ", max_size=8), max_size=6))
def test_a_long_enough_fence_keeps_any_contents(lines: list[str]) -> None:
    text = "\n".join(["`" * 12 + "c", *lines, "`" * 12])
    (found,) = fenced(text).blocks
    assert found == block("".join(f"{line}\n" for line in lines), "c")
