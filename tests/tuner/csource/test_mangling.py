import pytest

from tuner.csource.mangling import base_name, source_name


@pytest.mark.parametrize(
    ("symbol", "base", "name"),
    [
        ("plain", "plain", "plain"),
        ("_Z3addPfi", "add", "add"),
        ("_ZN2ns1qEPf", "q", "ns::q"),
        ("_Z5scaleIfLi4EEvPT_", "scale", "scale<float, 4>"),
        ("_ZN12_GLOBAL__N_11kILb1E6__halfEEvv", "k", "k<true, __half>"),
        ("_Z1kIN2ns1TELin3EEvv", "k", "k<ns::T, -3>"),
        ("_ZN1a1kILNS_1EE1EEEvv", "k", "a::k"),  # an enumerator: left out
        ("_ZN2at6native4fillILi4ENS0_3FooIfEESt5arrayIPcLm1EEEEviT0_", "fill", "at::native::fill"),
        ("_Z99short", "_Z99short", "_Z99short"),
        ("_Z", "_Z", "_Z"),
        ("", "", ""),
    ],
)
def test_names(symbol, base, name):
    assert base_name(symbol) == base
    assert source_name(symbol) == name
