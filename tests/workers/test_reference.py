import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.fields import PythonFunction
from workers.reference import (
    ReferenceFailed,
    ReferencePool,
    ReferenceProcess,
    reference_outputs,
    rounding_errors,
)


@pytest.fixture(scope="module")
def process():
    made = ReferenceProcess(seconds=20.0)
    yield made
    made.close()


def function(text: str, name: str = "f") -> PythonFunction:
    return PythonFunction(file="reference.py", text=text, function=name)


def test_arrays_and_scalars_go_in_and_arrays_come_out(process) -> None:
    text = "def f(x, scale):\n    return {'out': x * scale, 'count': (x > 0).sum(axis=1)}"
    x = np.arange(-3.0, 3.0).reshape(2, 3)
    found = process.call(function(text), {"x": x, "scale": 0.5, "unused": 3})
    assert np.array_equal(found["out"], x * 0.5)
    assert found["count"].tolist() == [0, 2]


def test_a_single_array_has_no_name(process) -> None:
    found = process.call(function("def f(x):\n    return x + 1"), {"x": np.ones(3, np.int64)})
    assert found[""].tolist() == [2, 2, 2]
    assert found[""].dtype == np.int64


def test_one_array_for_two_outputs_asks_for_a_dict(process) -> None:
    outputs = [
        ResolvedArgument(name=name, kind="out", dtype="float32", shape=(2,)) for name in ("a", "b")
    ]
    with pytest.raises(SpecError, match=r"returns no a, b; return .* a dict with"):
        reference_outputs(process, function("def f():\n    return [1, 2], [3, 4]"), outputs, {})


def test_a_call_that_is_killed_from_outside_names_the_memory() -> None:
    process = ReferenceProcess(seconds=20.0)
    text = "import os\ndef f(x):\n    os.kill(os.getpid(), 9)"
    with pytest.raises(ReferenceFailed, match="killed by SIGKILL; the machine may be out of mem"):
        process.call(function(text), {"x": np.ones(3)})
    process.close()


def test_inputs_may_be_changed_in_place(process) -> None:
    text = "def f(x):\n    x += 1\n    return x"
    x = np.zeros(2)
    assert process.call(function(text), {"x": x})[""].tolist() == [1, 1]
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize(("outputs", "rounds"), [(1, True), (400, False)])
def test_what_rounding_makes_of_a_sum_follows_its_terms_not_its_size(
    process, outputs, rounds
) -> None:
    x = 1e3 * np.random.default_rng(1).standard_normal((outputs, 10_000)).astype(np.float32)
    x[:, -1] -= x.sum(axis=1, dtype=np.float64)  # the sums are near 0
    arguments = [
        ResolvedArgument(name="x", kind="in", dtype="float32", shape=x.shape),
        ResolvedArgument(name="out", kind="out", dtype="float32", shape=(outputs,)),
    ]
    sums = {"out": x.sum(axis=1, dtype=np.float64)}
    text = function("def f(x):\n    return x.sum(axis=1)")
    found = rounding_errors(process, text, arguments, {"x": x}, sums)
    assert found.keys() == ({"out"} if rounds else set())
    if rounds:
        one_by_one = float(np.cumsum(x[0])[-1])
        assert abs(one_by_one - sums["out"][0]) < found["out"] < 10.0, "a term is about 1000"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(x):\n    return x + undefined", r"NameError.*\(line 2 of reference.py\)"),
        ("def g(x):\n    return x", "reference.py has no function 'f'"),
        ("def f(x):\n    return object()", "elements of type object"),
        ("def f(x):\n    import sys\n    sys.exit(0)", "without an answer"),
        ("def f(x)\n", "SyntaxError"),
        ("def f(x):\n    return None", r"returned None; return an array, .* each output$"),
        ("import numpy as np\ndef f(x):\n    return np.ma.array(x)", "returned a masked array"),
        ("def f(x):\n    return x, x[:0]", r"returned a tuple that is no array; .* each output$"),
        ("import helper_of_mine", r"\(line 1 of reference.py\); the file runs alone: copy"),
        ("def f(x):\n    raise ValueError('\\ud800')", r"ValueError: \? \(line 2"),
        ("def f(x):\n    raise ValueError('a\\n' * 999)", r"ValueError: (a ){150} \(line 2"),
        (
            "class E(Exception):\n    __str__ = lambda self: 1 / 0\ndef f(x):\n    raise E",
            r"E: \(its message raises ZeroDivisionError\) \(line 4 of reference.py\)",
        ),
    ],
)
def test_whatever_it_does_is_one_message(process, text, says) -> None:
    with pytest.raises(ReferenceFailed, match=says):
        process.call(function(text), {"x": np.ones(2)})


def test_a_hang_is_one_message() -> None:
    process = ReferenceProcess(seconds=1.0)
    with pytest.raises(ReferenceFailed, match="no answer within 1 s; vectorise it with NumPy"):
        process.call(function("def f(x):\n    while True: pass"), {"x": np.ones(2)})
    process.close()


def test_what_it_prints_is_no_answer(process) -> None:
    text = "def f(x):\n    print('{}')\n    return x"
    assert process.call(function(text), {"x": np.ones(1)})[""].tolist() == [1]


def test_one_that_is_killed_from_outside_is_asked_again(process) -> None:
    text = (
        "import os, pathlib, tempfile\n"
        "def f(x):\n"
        "    once = pathlib.Path(tempfile.gettempdir(), 'once')\n"
        "    if not once.exists():\n"
        "        once.touch()\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return x\n"
    )
    assert process.call(function(text), {"x": np.ones(1)})[""].tolist() == [1]


def test_threads_that_call_at_once_have_a_process_each() -> None:
    pool, both = ReferencePool(), threading.Barrier(2)
    text = "import os\ndef f(x):\n    return x + os.getpid()"

    def process_id(_: int) -> int:
        with pool.taken() as process:
            both.wait(20)
            return int(process.call(function(text), {"x": np.zeros(1, np.int64)})[""][0])

    with ThreadPoolExecutor(2) as threads:
        used = set(threads.map(process_id, range(2)))
    with pool.taken() as again:
        assert int(again.call(function(text), {"x": np.zeros(1, np.int64)})[""][0]) in used
    assert len(used) == 2
    pool.close()
    with pytest.raises(EnvironmentProblem, match="closed"), pool.taken():
        pass


def test_floats_arrive_as_float64(process) -> None:
    found = process.call(function("def f(x):\n    return x * 1e300"), {"x": np.ones(1, np.float16)})
    assert found[""].tolist() == [1e300]
