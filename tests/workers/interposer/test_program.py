"""The library's interpreter of postfix programs agrees with expressions."""

import ctypes
import subprocess

import pytest
from hypothesis import given

from tests.tuner.expressions.strategies import environments, expressions
from tuner.expressions import Expression, ExpressionError
from workers.interposer.library import COMPILER, SOURCES

VARIABLES = {"a": "$0", "b": "$1", "f": "$2"}


class Program(ctypes.Structure):
    _fields_ = (("words", ctypes.c_void_p), ("count", ctypes.c_uint))


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.so"
    options = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fsanitize=undefined")
    subprocess.run(
        [COMPILER, *options, "-fno-sanitize-recover", SOURCES / "program.c", "-o", path], check=True
    )
    return ctypes.CDLL(str(path))


def value(interpreter, words, values=()):
    """The program's value; ``None`` if undefined, "malformed" if it is not read."""
    program, result = Program(), ctypes.c_int64()
    text = " ".join(words).encode()
    if not interpreter.kw_program_read(text, len(values), ctypes.byref(program)):
        return "malformed"
    variables = (ctypes.c_int64 * max(1, len(values)))(*values)
    defined = interpreter.kw_program_value(ctypes.byref(program), variables, ctypes.byref(result))
    return result.value if defined else None


@given(expressions(), environments())
def test_a_program_has_its_expressions_value_wherever_that_has_one(interpreter, tree, points):
    for point in points:
        bound = tree.bind({"M": point["M"]})
        words = bound.to_postfix(VARIABLES.__getitem__)
        try:
            expected = int(tree.evaluate(point))
        except ExpressionError:
            continue
        assert value(interpreter, words, [point["a"], point["b"], point["f"]]) == expected


def test_what_is_undefined_stays_undefined_unless_it_does_not_matter(interpreter):
    for text in ("1 // 0", "1 % 0", "2 ** -1", "2 ** 64", "log2(0)", "ceil_div(1, 0)"):
        words = Expression.parse(text).to_postfix(str)
        assert value(interpreter, words) is None, text
    for text, expected in (("0 and 1 // 0", 0), ("1 or 1 // 0", 1), ("5 if 1 else 1 // 0", 5)):
        assert value(interpreter, Expression.parse(text).to_postfix(str)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1 2", "+", "1 +", "$1", "$-1", "x", "1 2 ++", "9" * 30, "1 " * 300 + "+ " * 299, "--5"],
)
def test_a_malformed_program_is_not_read(interpreter, text):
    assert value(interpreter, text.split(), [7]) == "malformed"


def test_names_and_device_limits_have_no_program():
    for text in ("T == 'float16'", "device.warp_size"):
        with pytest.raises(ExpressionError, match="bind"):
            Expression.parse(text).to_postfix(str)
