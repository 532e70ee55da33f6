from tuner.experiment.domain import ties, with_ties
from tuner.expressions import Expression


def tied(*domain: str) -> dict[str, str]:
    found = ties(tuple(map(Expression.parse, domain)), frozenset({"a", "b", "c", "d"}))
    return {name: expression.text for name, expression in found.items()}


def test_either_side_of_an_equation_may_be_the_name() -> None:
    assert tied("a == b * c") == tied("b * c == a") == {"a": "b * c"}
    assert tied("a == b") == {"a": "b"}
    assert tied("a == 64") == {"a": "64"}


def test_what_is_no_equation_of_one_size_ties_nothing() -> None:
    for condition in (
        "a * b == c * d",
        "a == b == c",
        "a == b or a == c",
        "a == b if c else a == d",
        "a == a + b - b",
        "a == dtype",
        "1 <= a",
    ):
        assert tied(condition) == {}, condition


def test_ties_are_in_the_order_in_which_they_can_be_computed() -> None:
    for domain in (("a == b * c", "d == 2 * a"), ("d == 2 * a", "a == b * c")):
        assert list(tied(*domain)) == ["a", "d"]
    assert tied("a == b", "b == c") == {"b": "c", "a": "b"}
    assert tied("a == b", "b == a") == {"a": "b"}
    assert tied("a == b * c", "a == 2 * d") == {"a": "b * c"}


def test_tied_sizes_are_computed_anew() -> None:
    found = ties((Expression.parse("a == b * c"),), frozenset("abc"))
    assert with_ties({"b": 3, "c": 5}, found) == {"b": 3, "c": 5, "a": 15}
    assert with_ties({"a": 1, "b": 3, "c": 5}, found) == {"a": 15, "b": 3, "c": 5}
    found = ties(tuple(map(Expression.parse, ("d == 2 * a", "a == b * c"))), frozenset("abcd"))
    assert with_ties({"b": 3, "c": 5}, found) == {"b": 3, "c": 5, "a": 15, "d": 30}
