import pytest

from tuner.csource.mangling import base_name, demangled, source_name


@pytest.mark.parametrize(
    ("symbol", "base", "name"),
    [
        ("plain", "plain", "plain"),
        ("_Z3addPfi", "add", "add"),
        ("_ZN2ns1qEPf", "q", "ns::q"),
        ("_Z5scaleIfLi4EEvPT_", "scale", "scale<float, 4>"),
        ("_ZL5scalePf", "scale", "scale"),
        ("_ZN2nsL1kIfEEvPT_", "k", "ns::k<float>"),
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


@pytest.mark.parametrize(
    ("symbol", "parameters"),
    [
        ("plain", None),
        ("_Z1kv", ()),
        ("_Z5scalePfPKfi", ("float*", "const float*", "int")),
        ("_Z3addPKfS0_Pfm", ("const float*", "const float*", "float*", "unsigned long")),
        ("_Z5scaleIfLi4EEvPT_PKS0_x", ("float*", "const float*", "long long")),
        ("_ZN2ns4turnI6__halfEEvPT_S3_b", ("__half*", "__half*", "bool")),
        ("_Z4moveP13__nv_bfloat16PKS_3Box", ("__nv_bfloat16*", "const __nv_bfloat16*", "Box")),
        ("_ZN2ns3useEPNS_3BoxEPKS0_", ("ns::Box*", "const ns::Box*")),
        (
            "_ZN2ns3twoIf6__halfEEvPKT_PT0_PKS5_S2_NS_3BoxE",
            ("const float*", "__half*", "const __half*", "float", "ns::Box"),
        ),
        (
            "_Z3movP13__nv_bfloat16PKS_N2ns3BoxE1VIfEPS6_PKPKi",
            (
                "__nv_bfloat16*",
                "const __nv_bfloat16*",
                "ns::Box",
                "V<float>",
                "V<float>*",
                "const int**",
            ),
        ),
        ("_Z1kPFviE", None),
        ("_Z1kPKS9_", None),
        ("_Z1kIfEvT7_", None),
    ],
)
def test_parameters_are_as_declared_or_unknown(symbol, parameters):
    assert demangled(symbol).parameters == parameters


@pytest.mark.parametrize(
    "symbol",
    [
        "_Z5scale" + "P" * 4000 + "f",
        "_Z5scale" + "1XI" * 1000,
        "_Z5scaleP1A" + "".join(f"1XIS{n}_S{n}_E" for n in "02468ACEGIKMOQSUWY"),
        "_Z5scaleS" + "9" * 5000 + "_",
        "_Z" + "5" * 5000 + "scale",
        "_Z5scale" + "f" * 10_000,
    ],
)
def test_hostile_names_are_not_understood(symbol):
    assert demangled(symbol).parameters is None
