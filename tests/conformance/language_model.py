"""What every language-model adapter promises; each adapter's test inherits this class."""

import asyncio
from dataclasses import replace

import pytest

from agents.llm.port import (
    LanguageModel,
    Message,
    ModelUnavailable,
    Position,
    Reply,
    Request,
    Role,
    StepKey,
)

KERNEL = "a" * 64


def request_at(round_number: int = 1, attempt: int = 0, text: str = "Why is it slow?") -> Request:
    return Request(
        position=Position(
            experiment="demo",
            kernel=KERNEL,
            step=StepKey(round=round_number, draft=0, role=Role.PLANNING, attempt=attempt),
        ),
        messages=(Message(role="user", content=text),),
    )


class LanguageModelConformance:
    """Subclasses make a model that answers the given requests with the given replies."""

    def make(self, answers: dict[Request, Reply]) -> LanguageModel:
        raise NotImplementedError

    def test_gives_the_reply_that_belongs_to_the_position(self) -> None:
        first, second = request_at(1), request_at(2)
        replies = {first: Reply(text="one"), second: Reply(text="two", finish_reason="length")}
        model = self.make(replies)
        asyncio.run(model.ready())
        assert asyncio.run(model.complete(second)) == replies[second]
        assert asyncio.run(model.complete(first)) == replies[first]

    def test_asked_again_it_answers_the_same(self) -> None:
        model = self.make({request_at(): Reply(text="Memory.\r\n```c\nx\n```", model="m")})
        assert asyncio.run(model.complete(request_at())) == asyncio.run(
            model.complete(request_at())
        )

    def test_a_repair_is_answered_only_at_its_own_attempt(self) -> None:
        model = self.make(
            {request_at(attempt=0): Reply(text="bad"), request_at(attempt=1): Reply(text="mended")}
        )
        assert asyncio.run(model.complete(request_at(attempt=0))) == Reply(text="bad")
        assert asyncio.run(model.complete(request_at(attempt=1))) == Reply(text="mended")

    def test_without_a_reply_it_says_so(self) -> None:
        model = self.make({request_at(1): Reply(text="one")})
        with pytest.raises(ModelUnavailable):
            asyncio.run(model.complete(request_at(3)))

    def test_says_before_a_call_what_it_can_cost(self) -> None:
        model = self.make({request_at(): Reply(text="one")})
        price = asyncio.run(model.price(request_at()))
        assert price is None or price >= 0

    def test_another_kernel_gets_no_reply(self) -> None:
        mine = request_at()
        model = self.make({mine: Reply(text="one")})
        other = replace(mine, position=replace(mine.position, kernel="b" * 64))
        with pytest.raises(ModelUnavailable):
            asyncio.run(model.complete(other))
