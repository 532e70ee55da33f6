import pytest

from agents.static_profile import UNKNOWN, StaticProfile, roofline
from tuner.plan import Usage


def test_what_is_not_known_is_not_said() -> None:
    assert str(UNKNOWN) == ""
    assert str(StaticProfile(usage=Usage(static_shared_bytes=0))) == ""
    assert str(StaticProfile(usage=Usage(spill_bytes=0))) == "0 bytes spilled"


def test_the_most_frequent_kinds_are_named_with_their_counts() -> None:
    mix = tuple((f"kind {n}", 99 - n) for n in range(30))
    said = str(StaticProfile(usage=Usage(registers=40, mix=mix), occupancy=0.625))
    assert said.startswith("40 registers per thread; occupancy 62 %; instructions in the code: ")
    assert "99 kind 0, 98 kind 1" in said
    assert "kind 12" not in said


@pytest.mark.parametrize(
    ("floors", "times", "found"),
    [
        ([1.0, 3.0], [2.0, 4.0], (0.5, 0.75)),
        ([None, 3.0], [2.0, 4.0], (0.75, 0.75)),
        ([1.0, 3.0], [None, None], None),
        ([], [], None),
    ],
)
def test_the_share_of_the_possible_is_of_what_is_known(floors, times, found) -> None:  # type: ignore[no-untyped-def]
    assert roofline(floors, times) == found
