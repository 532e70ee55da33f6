import pytest

from tuner.drafts.fitting import fit_launch, fit_size


@pytest.mark.parametrize(
    ("values", "symbols", "text", "confidence"),
    [
        ([777], {"n": [777]}, "n", "medium"),
        ([7], {"n": [7]}, "n", "low"),
        ([6, 20, 63], {"m": [2, 4, 9], "n": [3, 5, 7]}, "m * n", "high"),
        ([20, 40], {"d": [10, 20]}, "2 * d", "high"),
        ([5, 50], {"d": [10, 100]}, "d // 2", "high"),
        ([101, 201], {"n": [100, 200]}, "n + 1", "high"),
        ([64, 64], {"n": [100, 200]}, "64", "medium"),
        ([64], {}, "64", "low"),
        ([64, 65], {}, None, None),
        ([10, 11], {"n": [100, 200]}, None, None),
        ([100], {"n": [100], "m": [100]}, "n", "low"),
    ],
)
def test_sizes(values, symbols, text, confidence):
    found = fit_size(values, symbols)
    assert (found and found.text, found and found.confidence) == (text, confidence)


@pytest.mark.parametrize(
    ("values", "symbols", "unit", "text"),
    [
        ([4, 1954, 512], {"n": [1000, 500_007, 131_072]}, 256, "ceil_div(n, 256)"),
        ([1, 32, 512], {"n": [1024, 1 << 16, 1 << 20]}, 64, "ceil_div(n, 2048)"),
        ([33, 40], {"rows": [33, 40], "d": [64, 64]}, 128, "rows"),
        ([264, 264], {"n": [100, 999]}, 128, "264"),
        ([10, 132, 132], {"n": [2560, 99_999, 200_000]}, 256, "min(ceil_div(n, 256), 132)"),
        ([10, 20], {"n": [1000, 2000]}, 32, "ceil_div(n, 100)"),
        ([8], {"n": [2000]}, 256, "ceil_div(n, 256)"),
        ([3, 5], {}, 32, None),
        ([5, 4], {"n": [10, 20]}, 32, None),
    ],
)
def test_launches(values, symbols, unit, text):
    found = fit_launch(values, symbols, unit)
    assert (found and found.text) == text


def test_what_else_fits_is_told():
    found = fit_size([100, 100], {"n": [100, 100], "m": [100, 100]})
    assert found.why == "fits 2 shapes; so would m"
