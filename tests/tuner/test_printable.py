"""Text for people: a number with its noun."""

from tuner.printable import counted


def test_a_noun_is_singular_behind_one_alone():
    assert [counted(number, "loop") for number in (0, 1, 2)] == ["0 loops", "1 loop", "2 loops"]
    assert (counted(1, "launch", "launches"), counted(3, "launch", "launches")) == (
        "1 launch",
        "3 launches",
    )
