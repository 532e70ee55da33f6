"""What a processor has learnt of branches."""

from typing import Any

import numpy as np

from workers.backends.opencl.driver import OpenCL

_GROUPS, _BRANCHES, _ROUNDS = 4, 32, 1 << 17
"""Groups for each core, and branches and rounds of each, which take 35 ms: of 4,096 branches that
depend on inputs a processor (EPYC, 2026-11-30) knew none then, and a third after 10 ms."""
_SOURCE = """
kernel void forget(global uint *sink, uint seed, uint rounds)
{
    uint at = get_global_id(0), bits = seed * 2654435761u + at * 40503u + 1u, a = 0, b = 1;
    for (uint i = 0; i < rounds; i++) {
        bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
        %s
    }
    sink[at] = a + b;
}
"""


class BranchHistory:
    """Lets a processor forget which way the branches of kernels went.

    One that runs a kernel on the same inputs again and again predicts all its branches.
    """

    def __init__(self, opencl: OpenCL) -> None:
        self._opencl = opencl
        self._groups, self._seed = _GROUPS * opencl.device.multiprocessors, 0
        self._kernel: Any = None

    def forget(self) -> None:
        """Take branches at random on every core, and wait for that."""
        cl, context, queue = self._opencl.cl, self._opencl.context, self._opencl.queue
        if self._kernel is None:  # few candidates need it
            source = _SOURCE % "\n".join(
                f"if (bits >> {n} & 1) sink[at] = a = a * {2 * n + 3} + b; else b ^= a + {n};"
                for n in range(_BRANCHES)
            )
            self._kernel = cl.Kernel(cl.Program(context, source).build(), "forget")
            self._sink = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * self._groups)
        self._seed += 1
        self._kernel.set_args(self._sink, np.uint32(self._seed), np.uint32(_ROUNDS))
        cl.enqueue_nd_range_kernel(queue, self._kernel, (self._groups,), (1,))
        queue.finish()
