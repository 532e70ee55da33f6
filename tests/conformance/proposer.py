"""What every search strategy owes to the session, whatever it believes about the space."""

import math

import pytest

from tuner.space.feasible import FeasibleSet, recorded_set


def small_space() -> FeasibleSet:
    """36 points of 60: the sum of ordinals is even, or the mode is the first."""
    parameters = {
        "A": (1, 2, 4, 8, 16),
        "FAST": (False, True),
        "MODE": ("plain", "cached"),
        "B": (1, 2, 3),
        "FIXED": (7,),
    }
    rows = [
        (a, fast, mode, b, 0)
        for a in range(5)
        for fast in range(2)
        for mode in range(2)
        for b in range(3)
        if mode == 0 or (a + b) % 5 == 0
    ]
    return recorded_set(parameters, rows)


def small_loss(configuration) -> float | None:
    """A valley at A=8, B=2; the fast variant fails for the widest A."""
    values = configuration.as_dict()
    if values["FAST"] and values["A"] == 16:
        return None
    return (
        1.0
        + abs(math.log2(values["A"]) - 3)
        + 0.5 * abs(values["B"] - 2)
        + (0.3 if values["MODE"] == "cached" else 0.0)
        - (0.2 if values["FAST"] else 0.0)
    )


def small_losses(configuration) -> tuple[float, ...] | None:
    """The valley as two shapes see it: the second likes a wider B."""
    loss = small_loss(configuration)
    return None if loss is None else (loss, loss, loss * (2.0 - configuration.as_dict()["B"] / 4))


class ProposerConformance:
    """Inherit, and give :meth:`make`."""

    def make(self, space, seed):
        raise NotImplementedError

    @pytest.fixture
    def space(self):
        return small_space()

    def walk(self, proposer, trials):
        """Ask and tell in turn; the configurations in order."""
        asked = []
        for trial in trials:
            configuration = proposer.ask(trial)
            if configuration is None:
                break
            asked.append(configuration)
            proposer.tell(trial, small_losses(configuration))
        return asked

    def test_every_point_once_and_then_none(self, space):
        proposer = self.make(space, seed=3)
        asked = self.walk(proposer, range(len(space) + 5))
        assert sorted(space.index_of(c) for c in asked) == list(range(len(space)))
        assert proposer.ask(len(space)) is None

    def test_the_same_seed_proposes_the_same(self, space):
        first = self.walk(self.make(space, seed=5), range(24))
        assert first == self.walk(self.make(space, seed=5), range(24))

    def test_seeds_differ(self, space):
        walks = {tuple(self.walk(self.make(space, seed), range(12))) for seed in range(4)}
        assert len(walks) > 1

    @pytest.mark.parametrize("cut", [1, pytest.param(7, marks=pytest.mark.slow), 23])
    def test_rebuilt_by_record_and_tell_it_goes_on_as_if_undisturbed(self, space, cut):
        undisturbed = self.make(space, seed=1)
        before = self.walk(undisturbed, range(cut))
        rebuilt = self.make(space, seed=1)
        for trial, configuration in enumerate(before):
            rebuilt.record(trial, configuration)
            rebuilt.tell(trial, small_losses(configuration))
        rest = range(cut, len(space))
        assert self.walk(rebuilt, rest) == self.walk(undisturbed, rest)

    def test_rebuilt_with_proposals_still_pending(self, space):
        def events(proposer):
            asked = []
            for trial in range(20):
                asked.append(proposer.ask(trial))
                if trial >= 3:
                    proposer.tell(trial - 3, small_losses(asked[trial - 3]))
            return asked

        undisturbed = self.make(space, seed=2)
        asked = events(undisturbed)
        rebuilt = self.make(space, seed=2)
        for trial, configuration in enumerate(asked):
            rebuilt.record(trial, configuration)
            if trial >= 3:
                rebuilt.tell(trial - 3, small_losses(asked[trial - 3]))
        for trial in range(20, 30):
            assert rebuilt.ask(trial) == undisturbed.ask(trial)

    def test_pending_points_are_not_proposed_again(self, space):
        proposer = self.make(space, seed=4)
        asked = [proposer.ask(trial) for trial in range(len(space))]
        assert len(set(asked)) == len(space)
        assert proposer.ask(len(space)) is None

    def test_results_may_come_in_any_order(self, space):
        proposer = self.make(space, seed=6)
        asked = [proposer.ask(trial) for trial in range(10)]
        for trial in reversed(range(10)):
            proposer.tell(trial, small_losses(asked[trial]))
        assert proposer.ask(10) not in asked

    def test_nothing_but_failures(self, space):
        proposer = self.make(space, seed=7)
        for trial in range(len(space)):
            assert proposer.ask(trial) is not None
            proposer.tell(trial, None)

    def test_equal_losses(self, space):
        proposer = self.make(space, seed=7)
        for trial in range(len(space)):
            assert proposer.ask(trial) is not None
            proposer.tell(trial, (1.0, 1.0, 1.0))

    def test_a_recorded_configuration_from_outside_is_passed_over(self, space):
        other = recorded_set({"Z": (1, 2)}, [[0], [1]])
        proposer = self.make(space, seed=8)
        proposer.record(0, other.configuration(1))
        proposer.tell(0, (2.0,))
        assert len(self.walk(proposer, range(1, 30))) == 29

    def test_a_single_point(self):
        space = recorded_set({"A": (1,)}, [[0]])
        proposer = self.make(space, seed=0)
        assert proposer.ask(0) == space.configuration(0)
        proposer.tell(0, (1.0,))
        assert proposer.ask(1) is None
