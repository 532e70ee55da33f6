"""What a model's reference function may contain."""

import pytest

from agents.reference_rules import reference_violation

GOOD = """
import math
import numpy as np

EPS = 1e-6

def erf(x):
    return np.vectorize(math.erf)(x)

def norm(x, weight, n, **rest):
    rows = x.reshape(-1, n).astype(np.float64)
    out = [row / np.sqrt(np.mean(row ** 2) + EPS) for row in rows]
    total = sum(np.linalg.norm(row) for row in out)
    square = lambda value: value * value
    for i, row in enumerate(out):
        if not np.isfinite(total):
            raise ValueError(f"{i} {square(row)!r}")
    return {"out": np.stack(out) * weight, "gelu": 0.5 * x * (1 + erf(x / math.sqrt(2)))}
"""


def test_numpy_is_enough():
    assert reference_violation(GOOD) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os", "import os is not allowed"),
        ("import numpy.testing", "import numpy.testing is not allowed"),
        ("from math import sqrt", "nothing else may be imported"),
        ("from os import *", "nothing else may be imported"),
        ("open('/etc/passwd')", "the name open is not defined, or may not be used"),
        ("__import__('os')", "__import__"),
        ("getattr(1, 'x')", "getattr"),
        ("eval('1')", "eval"),
        ("().__class__", ".__class__ is not allowed"),
        ("import numpy as np\nnp.load('x')", "line 2: .load is not allowed"),
        ("import numpy as np\nx = np.zeros(3)\nx.tofile('x')", ".tofile is not allowed"),
        ("import numpy as np\nx = np.zeros(3).ctypes", ".ctypes is not allowed"),
        ("import numpy as np\nnp.lib.npyio", "numpy.lib is not allowed"),
        ("import numpy as np\nnp.testing.run()", "numpy.testing is not allowed"),
        ("import numpy as np\nnp.nothing", "numpy has no nothing"),
        ("import numpy as np\ny = np\ny.lib", "a module may be used as MODULE.NAME only"),
        ("import numpy as np\nf = np.linalg", "a module may be used as MODULE.NAME only"),
        ("import numpy as np\nnp.linalg.linalg", "numpy"),
        ("import numpy as np\n[np][0].lib", "a module may be used"),
        ("def f(m=1):\n    with m: pass", "With is not allowed"),
        ("try:\n    pass\nexcept ValueError:\n    pass", "Try is not allowed"),
        ("class A: pass", "ClassDef is not allowed"),
        ("def f(:", "line 1:"),
        ("x" * 60_000, "characters"),
    ],
)
def test_what_reaches_further_is_named(text, words):
    assert words in reference_violation(text)
