"""Notes on what was not checked: one for each cause."""

from tuner.journal.facts import Unchecked
from tuner.results.notes import note_texts
from tuner.trial import Code


def unchecked(shape, inputs, reason, code=Code.DISAGREES, *, wrong=False):
    return Unchecked(shape=shape, inputs=inputs, reason=reason, code=code, wrong=wrong)


def test_all_shapes_at_which_the_kernel_is_wrong_are_one_note():
    first = unchecked("n=31", "exact zeros", "the baseline never writes out[30]", wrong=True)
    second = unchecked("n=1", "ordinary inputs", "the baseline never writes out[0]", wrong=True)
    wrong, text = note_texts([first, "a text", second, "a text"])
    assert text == "a text"
    assert wrong == (
        "your kernel is wrong at 2 shapes inside shapes.domain, first n=31: the baseline never "
        "writes out[30]; mend it (a bounds check, say), or narrow shapes.domain"
    )
    assert note_texts([second])[0].startswith("your kernel is wrong at n=1, inside shapes.domain: ")


def test_a_kernel_that_rounds_too_much_is_not_told_to_check_bounds():
    reason = "the baseline disagrees with its reference: out[3] is 12.1912, expected 12.1917"
    rounded = unchecked("n=99", "ordinary inputs", reason, Code.ROUNDING, wrong=True)
    gross = unchecked("n=1", "ordinary inputs", "out[0] is 7, expected 1", wrong=True)
    first, second = note_texts([rounded, gross])
    assert first.startswith(
        f"your kernel misses its tolerance at n=99, inside shapes.domain: {reason}"
    )
    assert "widen `rtol` or `atol`, or sum more accurately" in first
    assert "bounds" not in first
    assert second.startswith("your kernel is wrong at n=1")
    assert "a bounds check" in second
    timed = unchecked("n=99", "ordinary inputs", reason, Code.ROUNDING)
    assert "so the tolerance is too narrow" in note_texts([timed])[0]


def test_inputs_that_were_not_checked_for_one_cause_are_one_note():
    low = unchecked("n=64", "low numbers", "the baseline disagrees with its reference: out[3] is 1")
    high = unchecked(
        "n=9", "high numbers", "the baseline disagrees with its reference: out[7] is 2"
    )
    slow = [
        unchecked(f"n={n}", "exact zeros", f"the baseline takes 0.{n} s, too long", Code.HANG)
        for n in (31, 32)
    ]
    contradicted, long = note_texts([low, slow[0], high, slow[1]])
    assert contradicted.startswith(
        "not checked on 2 sets of inputs at 2 shapes (low numbers; high numbers), first n=64, low "
        "numbers: the baseline disagrees with its reference: out[3] is 1; ordinary inputs "
        "agree, so the tolerance is too narrow for such inputs: widen its "
    )
    assert long == (
        "not checked on 2 sets of inputs at 2 shapes (exact zeros), first n=31, exact zeros: the "
        "baseline takes 0.31 s, too long"
    )
