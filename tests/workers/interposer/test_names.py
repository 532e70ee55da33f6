"""Kernel names for people."""

import pytest

from workers.interposer.names import mangled_part, nearest_names, readable_name

MANGLED = {
    "_Z4siluPKfPfi": "silu",
    "_ZN2at6native4copyIfEEvPT_": "at::native::copy",
    "_Z5scaleIfLi4EEvPT_": "scale",
    "_ZN12_GLOBAL__N_16kernelEPf": "(anonymous)::kernel",
    "triton_kernel": "triton_kernel",
    "_Z": "_Z",
    "_Z99": "_Z99",
}


@pytest.mark.parametrize(("mangled", "readable"), MANGLED.items())
def test_a_mangled_name_is_shown_without_its_arguments(mangled, readable):
    assert readable_name(mangled) == readable


@pytest.mark.parametrize("mangled", ["_ZN2at6native4copyIfEEvPT_", "_ZN12_GLOBAL__N_16kernelEPf"])
def test_a_qualified_name_finds_its_mangled_one(mangled):
    assert mangled_part(readable_name(mangled)) in mangled


def test_the_nearest_names_are_the_likeliest():
    assert nearest_names("*cpy*", MANGLED)[0] == "at::native::copy"
    assert nearest_names("gemm", MANGLED) == []
