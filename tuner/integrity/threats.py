"""The threats to a result, the checks against each, and the tests of those checks.

One table for both packages of checks: :mod:`tuner.integrity` needs no launch, ``workers.integrity``
does. ``docs/integrity.md`` shows it.
"""

from typing import NamedTuple


class Threat(NamedTuple):
    """How a kernel can look correct or fast without being so.

    ``checks`` are modules, or functions as ``module:name``. ``tests`` are files in addition to the
    folders of ``tests/exploits`` and ``tests/gpu/exploits`` that begin with ``number``.
    """

    number: int
    threat: str
    checks: tuple[str, ...]
    tests: tuple[str, ...] = ()


_SOURCE = "tuner.integrity.source_rules:source_violations"
_INCLUDE = "tuner.integrity.include_rules:include_violation"
_BINARY = "tuner.integrity.binary_rules:binary_rejection"
_LAUNCH = "workers.integrity.launch_checks"
_TRIVIAL = "workers.integrity.trivial_answers"
_BOUNDS = "workers.integrity.time_bounds"
_RECHECK = "workers.integrity.timing_recheck"
_COMPARE = "workers.comparison"
_ORACLE = "workers.bench.oracle"
_INPUTS = "workers.inputs"
_BURSTS = "workers.bench.bursts"
_CONFIRM = "workers.bench.confirmation"
_CHECKERS = "workers.checkers.examination"
_LIMITS = "tuner.space.limits"
_LOWER = "tuner.space.lower"
_ODD = "tuner.experiment.odd_shapes"
_STATISTICS = "tuner.results.statistics"

_BENCH_TESTS = "tests/workers/bench/test_device_bench.py"
_CHECK_TESTS = "tests/workers/integrity/test_launch_checks.py"
_RECHECK_TESTS = "tests/workers/integrity/test_timing_recheck.py"
_SOURCE_TESTS = "tests/tuner/integrity/test_source_rules.py"
_CHECKER_TESTS = "tests/workers/checkers/test_examination.py"
_ODD_TESTS = "tests/tuner/experiment/test_odd_shapes.py"
_INPUT_TESTS = "tests/workers/test_inputs.py"

THREATS = tuple(
    Threat(number, *row)
    for number, row in enumerate(
        (
            ("writes nothing; the output still holds an earlier result", (_LAUNCH, _TRIVIAL)),
            (
                "writes nothing; its output was allocated where the reference had been",
                (_LAUNCH, _ORACLE),
                (_CHECK_TESTS,),
            ),
            ("caches its first result in device memory", (_LAUNCH, _RECHECK)),
            ("caches results by the address of an input", (_LAUNCH, _RECHECK)),
            (
                "caches results by a sample or digest of the inputs",
                (_LAUNCH, _BURSTS, _RECHECK),
                (_RECHECK_TESTS,),
            ),
            ("is correct for the first launches only", (_BURSTS, _LAUNCH)),
            ("computes in warm-up, but not when timed", (_BURSTS, _SOURCE, _BINARY)),
            ("does the work of several launches in one", (_BURSTS, _LAUNCH)),
            (
                "returns a constant that is within the tolerance",
                (_TRIVIAL, "tuner.experiment.tolerances"),
                (_BENCH_TESTS, "tests/workers/test_tolerance.py"),
            ),
            ("ignores an input with little effect", (_ORACLE, _LAUNCH)),
            ("leaves out the last elements", (_COMPARE, _ODD)),
            ("leaves out an in-place or second output", (_COMPARE, _LAUNCH)),
            ("overwrites its inputs", (_LAUNCH,)),
            ("writes outside its buffers", (_LAUNCH, _CHECKERS)),
            ("searches memory for the expected result", (_LAUNCH, _CHECKERS)),
            (
                "writes NaN or infinity that a comparison lets pass",
                (_COMPARE,),
                ("tests/workers/test_comparison.py",),
            ),
            ("writes half as many elements of a wider type", (_COMPARE, _SOURCE)),
            ("computes in lower precision", (_ORACLE, _COMPARE)),
            ("works for the tune shapes only", (_CONFIRM, _ODD)),
            ("contains results for a known seed", (_INPUTS,), (_INPUT_TESTS,)),
            ("relies on how inputs are distributed or ordered", (_INPUTS, _CONFIRM)),
            ("adds to, or trusts, what its output held before", (_LAUNCH, _BURSTS)),
            ("finishes after the timing has stopped", (_SOURCE, _BINARY, _BOUNDS)),
            ("fails to launch, unnoticed, in no time", (_LIMITS, _LAUNCH)),
            ("launches an empty or wrong grid", (_LOWER, _COMPARE)),
            ("has a race or reads uninitialised shared memory", (_LAUNCH, _CHECKERS)),
            (
                "keeps data in the cache from launch to launch",
                (_BURSTS, _BOUNDS),
                ("tests/workers/bench/test_session.py",),
            ),
            ("has a parameter that changes the result", (_LAUNCH,)),
            (
                "redefines words by macros or by a parameter's value",
                (_SOURCE, _LOWER),
                (_SOURCE_TESTS, "tests/tuner/csource/test_expansion.py"),
            ),
            (
                "is timed by another function than the one checked",
                (_LOWER,),
                ("tests/conformance/device_backend.py",),
            ),
            (
                "includes files of the machine",
                (_INCLUDE,),
                ("tests/workers/backends/test_nvrtc.py",),
            ),
            ("prints a result, or exits with one", (_SOURCE, "workers.bench.protocol")),
            ("hangs, traps or exhausts memory", ("workers.bench.supervisor", "workers.process")),
            (
                "slows or replaces the baseline",
                (_BURSTS, _CONFIRM),
                ("tests/workers/bench/test_bursts.py",),
            ),
            (
                "is timed with less work than the baseline",
                ("workers.bench.session",),
                ("tests/workers/bench/test_session.py",),
            ),
            (
                "wins by one lucky sample",
                (_CONFIRM, _STATISTICS),
                ("tests/tuner/results/test_statistics.py",),
            ),
            ("overflows a 32-bit index", (_ODD, _CONFIRM), (_ODD_TESTS,)),
            ("assumes more alignment than was promised", (_LAUNCH,)),
            (
                "keeps state from one configuration to the next",
                ("workers.bench.trial_runner", _CONFIRM),
                ("tests/conformance/device_backend.py",),
            ),
            (
                "has a path that no shape takes, and is tuned for it",
                ("tuner.results.parameters",),
                ("tests/tuner/results/test_parameters.py",),
            ),
            (
                "reads through the non-coherent path what it writes",
                (_BINARY,),
                ("tests/workers/backends/test_ptx.py",),
            ),
            ("is wrong for some remainders of a size", (_ODD, _CONFIRM), (_ODD_TESTS,)),
            (
                "contains a scalar's value, or never reads a constant input",
                (_INPUTS, _CONFIRM),
                (_INPUT_TESTS,),
            ),
            ("loses integers that a narrow type cannot hold", (_INPUTS,), (_INPUT_TESTS,)),
            (
                "leaves out results that are small beside the others",
                (_COMPARE, _TRIVIAL),
                ("tests/workers/test_comparison.py",),
            ),
            (
                "exchanges elements where order is free",
                (_COMPARE,),
                ("tests/workers/test_comparison.py",),
            ),
            (
                "idles in some launches of a burst",
                (_BURSTS,),
                ("tests/workers/bench/test_bursts.py",),
            ),
            (
                "remembers what follows from inputs that never change",
                (_RECHECK,),
                (_RECHECK_TESTS,),
            ),
            ("changes the recorded times", (_BOUNDS,), (_BENCH_TESTS,)),
            ("is wrong in one launch of a thousand", (_CHECKERS, _CONFIRM), (_CHECKER_TESTS,)),
            (
                "is refused although equal: atomics in another order",
                (_ORACLE,),
                ("tests/workers/test_tolerance.py",),
            ),
            ("reads past its inputs", (_CHECKERS,), (_CHECKER_TESTS,)),
            ("overlaps the launch before or after it", (_SOURCE, _BINARY), (_SOURCE_TESTS,)),
        ),
        1,
    )
)
"""Numbered from 1."""
