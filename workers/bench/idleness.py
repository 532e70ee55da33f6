"""Whether a child is idle once its launches have ended.

On a processor a kernel shares the child's memory: it can have a driver's thread go on after its
launch, to compute what later launches need. Such a thread cannot sleep without a system call.
"""

import time

from tuner.process_stat import running_threads

PATIENCE_SECONDS = 5.0
"""A thread that runs at each look for so long does not end. Idle children are seen at once; on a
busy machine one may wait for a processor to finish its last request."""
_POLL_SECONDS = 0.001


def keeps_running(pid: int, patience: float = PATIENCE_SECONDS) -> bool:
    """Whether one of a process's threads runs at each look for ``patience`` seconds."""
    running = running_threads(pid)
    ends = time.monotonic() + patience
    while running and time.monotonic() < ends:
        time.sleep(_POLL_SECONDS)
        running &= running_threads(pid)
    return bool(running)
