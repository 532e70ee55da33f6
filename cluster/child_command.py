"""Commands in child processes that end with this process, however that ends.

Owns how a child is begun and ended. A child runs this module, which sends it SIGTERM when its
parent dies: a parent that is killed can tell it nothing. A run that gets SIGTERM ends in order and
can be resumed.
"""

import asyncio
import os
import select
import signal
import sys
import threading
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_HOME = Path(__file__).parents[1]
"""Where ``python -m cluster`` finds this package, and no package of the user's."""


def kernelwright_command() -> tuple[str, ...]:
    """The words of ``kernelwright`` as a child of this process."""
    return (sys.executable, "-m", __name__, str(os.getpid()))


async def begin(
    words: Sequence[str],
    *,
    output: int | IO[bytes],
    errors: int | IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Begin a command in a session of its own: a Ctrl-C reaches it through this process alone.

    Args:
        words: the whole command line.
        output: where its stdout goes, as for ``subprocess``.
        errors: the same for stderr.
        environment: its variables; by default this process's.
    """
    return await asyncio.create_subprocess_exec(
        *words,
        stdin=DEVNULL,
        stdout=output,
        stderr=errors,
        cwd=_HOME,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )


def terminate(children: Collection[Process]) -> None:
    """Send SIGTERM to those that go on: the first ends a run in order, a second one at once."""
    for child in children:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.terminate()


async def end(children: Collection[Process], seconds: float | None = None) -> None:
    """Terminate, and wait until all have ended; kill those that take longer than ``seconds``."""
    terminate(children)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for child in children:
                await child.wait()
    for child in children:
        if child.returncode is None:
            child.kill()
            await child.wait()


def _end_with(parent: int) -> None:
    """Send this process one SIGTERM when its parent ends; exit at once if that is gone already.

    The kernel's own signal (``PR_SET_PDEATHSIG``) comes for several threads of a killed parent,
    and a second SIGTERM ends a run at once.
    """
    ended = os.pidfd_open(parent)
    if os.getppid() != parent:
        sys.exit(1)

    def wait() -> None:
        select.select([ended], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _main(parent: str, words: Sequence[str]) -> None:
    _end_with(int(parent))
    from cluster.cli.main import main

    sys.argv = ["kernelwright", *words]
    main()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
