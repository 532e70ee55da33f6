"""The run as a state machine without I/O: events in, commands out.

The protocol, which the driver obeys and nothing else knows:

1. Build ``Session(experiment, compile_slots=…, bench_slots=…)``; apply every fact of the journal in
   order, and ``record`` each ``TrialProposed`` with the new proposer; then journal and apply an
   :class:`~tuner.journal.facts.EpochOpened`. It marks the start of a process: whatever was in
   flight in an earlier one is queued again, and the baseline is compiled and prepared anew.
2. Call ``decide(now)`` until it returns nothing, executing each list of commands in order, each
   command once. ``Record`` and ``Propose`` are answered on the spot, the others become jobs of the
   fleet. Sync the journal before a job is sent. The proposer is told losses by ``Propose`` alone.
3. Wait for answers, at most about half a second, so that budgets of time are kept. Turn each answer
   into one fact or signal (``searched`` of a ``TrialFinished`` is ``Session.searched(now)``).
   Journal it if it is a fact, apply it, and go back to 2 before the next answer is looked at.
4. ``Finish`` ends the process; ``history.finished`` tells whether the run is over or resumable.

A worker that was given up may answer after all: ``expects`` tells whether a fact is waited for.

Determinism: with one bench, trial ``k`` is proposed knowing the outcomes of exactly the trials up
to ``k - lookahead`` (on a CPU device: of all earlier phases), told in order, however the answers
arrive. So a run that was killed anywhere ends like the undisturbed one, but for which hopeless
cells are given up (:mod:`tuner.racing`): that goes by what is known when a job is sent. With
several benches an outcome counts as soon as it is there.
"""
