"""Iterates over a run in a thread of its own, for a program that may have an event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from cluster.cli.console import Update
from cluster.interruptible import until_done
from cluster.runs.resuming import interrupt_note, resume_hint
from cluster.runs.workplace import Running


def follow(running: Running, folder: Path, on_event: Callable[[Update], None]) -> None:
    """Go on until the run ends; call ``on_event`` from the thread when its line changes.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the run was ended; a note says how to continue it.
        KernelwrightError: what the run raises; also what ``on_event`` raises is passed on.
    """
    loop = asyncio.new_event_loop()

    async def iterate() -> None:
        shown = ""
        async for event in running.progress():
            if shown != (shown := str(event)):
                on_event(event)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(iterate())

    with ThreadPoolExecutor(1, thread_name_prefix="tune") as thread:
        done = thread.submit(run)
        try:
            with resume_hint(folder), interrupt_note(folder):
                until_done(done)
                done.result()
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                loop.call_soon_threadsafe(running.stop, "interrupted")
            raise
