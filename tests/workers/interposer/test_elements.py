"""The library's comparison of elements agrees with the bench's."""

import ctypes
import subprocess

import ml_dtypes
import numpy as np
import pytest

from workers.comparison import Expected, compare
from workers.interposer.library import COMPILER, SOURCES

TYPES = {
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "int32": np.int32,
    "uint16": np.uint16,
    "int64": np.int64,
}
WRAPPER = """
#include <string.h>
#include "elements.h"
size_t failures(const char *element, int comparison, double rtol, double atol, double ulp,
                const unsigned char *got, const unsigned char *want, size_t bytes)
{
    kw_buffer_rule rule = {.comparison = comparison, .rtol = rtol, .atol = atol, .ulp = ulp};
    kw_difference found = {0};
    strcpy(rule.element, element);
    return kw_compare_elements(&rule, got, want, bytes, &found) ? found.failures : (size_t)-1;
}
"""
MODES = ("close", "exact", "unordered", "ulp")


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elements")
    (folder / "wrapper.c").write_text(WRAPPER)
    sources = [folder / "wrapper.c", SOURCES / "elements.c"]
    options = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    command = [COMPILER, *options, f"-I{SOURCES}", *sources, "-o", folder / "e.so", "-lm"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(folder / "e.so"))
    library.failures.restype = ctypes.c_size_t

    def count(name, mode, got, want, rtol=0.0, atol=0.0, ulp=0):
        numbers = (ctypes.c_double(rtol), ctypes.c_double(atol), ctypes.c_double(ulp))
        left, right = got.tobytes(), want.tobytes()
        size = ctypes.c_size_t(len(left))
        return library.failures(name.encode(), MODES.index(mode), *numbers, left, right, size)

    return count


def values(name, seed):
    """Values around one another, with special ones where the type has them."""
    random = np.random.default_rng(seed)
    kind = TYPES[name]
    if name.startswith(("int", "uint")):
        return random.integers(0, 5, 400).astype(kind)
    made = (random.integers(-40, 40, 400) / 16).astype(kind)
    made[:6] = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]).astype(kind)
    return made


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("mode", "tolerance"),
    [
        ("close", {"rtol": 0.1, "atol": 0.05}),
        ("close", {}),
        ("exact", {}),
        ("ulp", {"ulp": 3}),
    ],
)
def test_the_same_elements_fail_as_in_the_bench(failures, name, mode, tolerance):
    want = values(name, 1)
    got = want.copy()
    got[::3] = values(name, 2)[::3]
    got[7::10] = (got[7::10].astype(np.float64) * 1.01).astype(TYPES[name])
    expected = Expected(path="", dtype=str(want.dtype), mode=mode, **tolerance)
    found = compare(got, want, expected)
    assert failures(name, mode, got, want, **tolerance) == found.failures > 0
    assert failures(name, mode, want, want, **tolerance) == 0


def test_order_does_not_matter_for_an_unordered_output(failures):
    want = np.arange(100, dtype=np.float32)
    assert failures("float32", "unordered", want[::-1].copy(), want) == 0
    assert failures("float32", "unordered", want[::-1] + 1, want) == 100
