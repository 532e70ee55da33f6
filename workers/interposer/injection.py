"""What became of an application's launches while a run's kernels were injected into it."""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass, field

from workers.interposer.trace import Counter, DifferenceLine, Trace


@dataclass(slots=True, kw_only=True)
class InjectedKernel:
    """The launches of one kernel.

    Without verification: launches of tuned kernels, of which ``recorded`` went into graphs,
    launches that failed and ``fell_back`` to the original, and launches of the original by reason.
    With it: launches that were compared and ``equal`` within the tolerance, or ``different``.
    """

    name: str
    substituted: int = 0
    recorded: int = 0
    fell_back: int = 0
    equal: int = 0
    different: int = 0
    original: Tally[str] = field(default_factory=Tally)
    differences: list[DifferenceLine] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The largest distance between an original's element and a tuned kernel's."""
        return max((line.worst for line in self.differences), default=0.0)

    @property
    def unequal(self) -> int:
        """Elements that were not equal bit for bit, over all compared launches."""
        return sum(line.unequal for line in self.differences)


UNSUITABLE = "pointers misaligned, overlapping or null, launch attributes, or no image loaded"
"""Why single launches of a shape that is substituted may not be."""


def injected_kernels(traces: Iterable[Trace], *, verified: bool) -> list[InjectedKernel]:
    """What became of each kernel that a rule is about, over all processes."""
    kernels: dict[str, InjectedKernel] = {}
    for trace in traces:
        for decision in trace.decisions:
            shape = trace.shapes[decision.shape]
            name = trace.kernels[shape.of].name
            kernel = kernels.setdefault(name, InjectedKernel(name=name))
            counter = trace.counters.get(decision.decision, Counter())
            first, second, third, originals = (
                counter.eager,
                counter.in_graphs,
                counter.timed,
                counter.ns,
            )
            if verified:
                kernel.equal += first
                kernel.different += second
            else:
                kernel.substituted += first
                kernel.recorded += second
                kernel.fell_back += third
            if originals:
                kernel.original[decision.reason or UNSUITABLE] += originals
            kernel.differences += [
                line for line in trace.differences if line.difference == decision.shape
            ]
    return list(kernels.values())
