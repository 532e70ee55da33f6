"""What is awaited unless something ends: nothing is lost, and other cancellations are passed on."""

import asyncio

import pytest

from cluster.fleets.batches import take, unless


def test_an_item_that_comes_with_the_end_stays_in_the_queue():
    async def body():
        queue, end = asyncio.Queue(), asyncio.get_running_loop().create_future()
        taking = asyncio.create_task(take(queue, end))
        await asyncio.sleep(0)
        end.set_result("leave")
        queue.put_nowait("item")
        assert await taking is None
        assert queue.get_nowait() == "item"
        assert await take(queue, end) is None

    asyncio.run(body())


def test_an_end_cancels_nothing_that_is_done_after_it():
    async def body():
        end = asyncio.get_running_loop().create_future()

        async def last():
            end.set_result("leave")
            return "result"

        assert await unless(last(), end) == "result"
        await asyncio.sleep(0.001)
        return "done"

    assert asyncio.run(body()) == "done"


def test_a_task_that_is_cancelled_while_it_waits_is_cancelled():
    async def body():
        ends = [asyncio.get_running_loop().create_future() for _ in range(2)]
        waiting = asyncio.create_task(unless(asyncio.sleep(60), *ends))
        await asyncio.sleep(0)
        for end in ends:
            end.set_result("leave")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(body())


def test_what_a_coroutine_raises_is_raised():
    async def body():
        async def fails():
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await unless(fails(), asyncio.get_running_loop().create_future())

    asyncio.run(body())
