"""Time the enumeration of feasible sets, beside python-constraint2 where that is installed.

Usage: python -m tests.benchmarks.enumeration [--json FILE]
"""

import argparse
import json
import time
from importlib.util import find_spec
from pathlib import Path

from tests.tuner.space.devices import opencl_cpu
from tests.tuner.space.experiments import experiment, template
from tests.tuner.space.recorded import CONVOLUTION, DEDISPERSION, GEMM
from tuner.space.feasible import feasible_set

SELECTIVE = (
    {name: tuple(range(1, 11)) for name in "ABCDEFGH"},
    ["A * B == 12", "C % B == 0", "D + E == A", "F * G * H == 60", "A * H <= 20"],
)
TILES = (
    {
        **{f"TILE_{axis}": tuple(2**i for i in range(4, 9)) for axis in "MNK"},
        **{f"WARP_{axis}": tuple(2**i for i in range(3, 8)) for axis in "MN"},
        **{f"VEC_{side}": (1, 2, 4, 8, 16) for side in "AB"},
        "STAGES": (1, 2, 3, 4, 5, 6),
        **{f"SWIZZLE_{side}": (0, 1, 2, 4) for side in "AB"},
        **{f"FLAG_{i}": (0, 1) for i in range(5)},
    },
    [
        "TILE_M % WARP_M == 0",
        "TILE_N % WARP_N == 0",
        "32 * (TILE_M // WARP_M) * (TILE_N // WARP_N) <= 256",
        "128 <= 32 * (TILE_M // WARP_M) * (TILE_N // WARP_N)",
        "2 * STAGES * TILE_K * (TILE_M + TILE_N) <= 99 * 1024",
        "2 * STAGES * TILE_K * (TILE_M + TILE_N) >= 64 * 1024",
        "VEC_A * VEC_B >= 64",
        "SWIZZLE_A <= VEC_A and SWIZZLE_B <= VEC_B",
        "FLAG_0 + FLAG_1 + FLAG_2 + FLAG_3 + FLAG_4 <= 1",
    ],
)
SPACES = {
    "convolution": CONVOLUTION,
    "dedispersion": DEDISPERSION,
    "gemm": GEMM,
    "selective": SELECTIVE,
    "tiles": TILES,
}


def ours(parameters, constraints):
    """Feasible points, the size of the product, and seconds."""
    family, problem, device = template(parameters, constraints), experiment(), opencl_cpu()
    start = time.perf_counter()
    found = feasible_set(problem, family, device)
    return len(found), found.cartesian, time.perf_counter() - start


def theirs(parameters, constraints):
    """Feasible points and seconds by python-constraint2."""
    from constraint import Problem

    start = time.perf_counter()
    problem = Problem()
    for name, values in parameters.items():
        problem.addVariable(name, list(values))
    for constraint in constraints:
        problem.addConstraint(constraint)
    return len(problem.getSolutions()), time.perf_counter() - start


def main(arguments=None):
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    installed = find_spec("constraint") is not None
    results = []
    print(f"{'space':14}{'product':>16}{'feasible':>12}{'seconds':>10}{'python-constraint2':>20}")
    for name, (parameters, constraints) in SPACES.items():
        count, cartesian, seconds = ours(parameters, constraints)
        result = {"space": name, "product": cartesian, "feasible": count, "seconds": seconds}
        shown = "not installed"
        if installed:
            other_count, other_seconds = theirs(parameters, constraints)
            assert other_count == count
            result["python_constraint2_seconds"] = other_seconds
            shown = f"{other_seconds:.3f}"
        results.append(result)
        print(f"{name:14}{cartesian:16,}{count:12,}{seconds:10.3f}{shown:>20}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
