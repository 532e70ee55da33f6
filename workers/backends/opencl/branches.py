"""What a processor has learnt of branches."""

from typing import Any

import numpy as np

_GROUPS, _ROUNDS = 4, 1 << 18
"""Groups for each core, and rounds of four branches in each, which take 9 ms. Of a kernel with
65,000 branches that depend on its inputs, a processor (EPYC, 2026-11-30) knew nothing after a
quarter of it, but a third where it was busy with other things too."""
_SOURCE = """
kernel void forget(global uint *sink, uint seed, uint rounds)
{
    uint at = get_global_id(0), bits = seed * 2654435761u + at * 40503u + 1u, a = 0, b = 1;
    for (uint i = 0; i < rounds; i++) {
        bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
        if (bits & 1) sink[at] = a = a * 3 + b;
        if (bits & 2) sink[at] = b = b * 5 + a;
        if (bits & 4) sink[at] = a ^= b;
        if (bits & 8) sink[at] = b += a;
    }
    sink[at] = a + b;
}
"""


class BranchHistory:
    """Lets a processor forget which way the branches of kernels went.

    One that runs a kernel on the same inputs again and again predicts all its branches.
    """

    def __init__(self, cl: Any, context: Any, queue: Any, units: int) -> None:
        self._cl, self._context, self._queue = cl, context, queue
        self._groups, self._seed = _GROUPS * units, 0
        self._kernel: Any = None

    def forget(self) -> None:
        """Take branches at random on every core, and wait for that."""
        cl = self._cl
        if self._kernel is None:  # few candidates need it
            self._kernel = cl.Kernel(cl.Program(self._context, _SOURCE).build(), "forget")
            self._sink = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, 4 * self._groups)
        self._seed += 1
        self._kernel.set_args(self._sink, np.uint32(self._seed), np.uint32(_ROUNDS))
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._groups,), (1,))
        self._queue.finish()
