"""Whether a child is idle once its launches have ended.

On a processor a kernel shares the child's memory: it can have a driver's thread go on after its
launch, to compute what later launches need. Such a thread cannot sleep without a system call.
"""

import time

from tuner.process_stat import running_threads

LOOKS = 5000
"""A thread that runs at each of so many looks does not end. Idle children are seen at once; on a
busy machine one may wait for a processor to finish its last request. Counted, since where this
process is stopped or waits, time passes without a look."""
_POLL_SECONDS = 0.001


def keeps_running(pid: int, looks: int = LOOKS) -> bool:
    """Whether one of a process's threads runs at each of ``looks`` looks, a millisecond apart."""
    running = running_threads(pid)
    for _ in range(looks):
        if not running:
            return False
        time.sleep(_POLL_SECONDS)
        running &= running_threads(pid)
    return bool(running)
