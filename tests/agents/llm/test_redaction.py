"""No secret is asked of a model or kept of its answer."""

import asyncio
from dataclasses import replace

import pytest

from agents.llm.port import Message, Reply, Request
from agents.llm.redaction import MARK, Redacting, redacted
from tests.conformance.language_model import request_at

SECRET = "a-token-without-any-form"


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-abcdefghij0123456789",
        "Authorization: Bearer abcdefgh12345",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        f"({SECRET})",
    ],
)
def test_keys_go(text: str) -> None:
    clean = redacted(text, [SECRET])
    assert MARK in clean
    assert "abcdefgh" not in clean.replace("Authorization", "")
    assert "MIIE" not in clean
    assert SECRET not in clean


@pytest.mark.parametrize(
    "text",
    [
        "int key = pk_index + 1;",
        "__shared__ float sk_tile[16];",
        "task-based, risk-free",
        "x[hf_row]",
    ],
)
def test_code_stays(text: str) -> None:
    assert redacted(text, ["", "on", SECRET]) == text


class Echo:
    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        self.asked.append(request)
        return Reply(text=f"you said {SECRET}")

    async def price(self, request: Request) -> float:
        return 0.0


def test_neither_question_nor_answer_holds_a_secret() -> None:
    echo = Echo()
    request = replace(
        request_at(), messages=(Message(role="user", content=f"// {SECRET}\nkernel"),)
    )
    model = Redacting(echo, (SECRET,))
    assert asyncio.run(model.complete(request)).text == f"you said {MARK}"  # type: ignore[union-attr]
    assert echo.asked[0].messages[0].content == f"// {MARK}\nkernel"
    assert echo.asked[0].position == request.position
    assert SECRET not in repr(model)
