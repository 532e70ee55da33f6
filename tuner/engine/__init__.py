"""The engine of a run: it sends work to a fleet, journals the answers, and decides what is next.

One trial's way, from proposal to journal:

1. :class:`~tuner.engine.session.Session` decides: ``Propose``. The
   :class:`~tuner.engine.engine.Engine` asks the proposer and journals a ``TrialProposed``.
2. The session has :class:`~tuner.engine.candidates.Candidates` lower the configuration and check it
   against the device's limits, then sends a ``CompileWork``. The engine forces the journal to disk,
   then submits the work to the :class:`~tuner.engine.fleet.Fleet`.
3. The fleet answers ``TrialCompiled``. The engine journals it; the session checks the limits again
   and queues the candidate (:mod:`~tuner.engine.bench_queue`). A candidate with the same code as
   another is not measured: it gets the other's outcome.
4. A few candidates go out as one ``MeasureWork``. The fleet answers ``TrialFinished`` for each; the
   engine journals it, and :class:`~tuner.journal.history.History` ranks it.
5. Once searching ends, :mod:`~tuner.engine.confirmation` sends the best as ``ConfirmWork`` to fresh
   processes, then the winners as ``ExamineWork`` to the checkers.

A worker that dies is answered as ``WorkLost``; :mod:`~tuner.engine.retries` decides whether its
work is sent again. Work outside a search (the rounds of agents) goes through the same engine as
:class:`~tuner.engine.requests.Requests`.

To resume, fold the journal into a history, and record each ``TrialProposed`` with a new proposer;
then journal and apply an ``EpochOpened``. What was in flight is void: a new session queues open
trials again, and compiles and prepares the baseline anew.

Determinism: with one bench, trial ``k`` is proposed knowing the outcomes of exactly the trials up
to ``k - lookahead`` (on a CPU device: of all earlier phases), told in order, however the answers
arrive. So a run that was killed anywhere ends like the undisturbed one, except for which cells are
cut short (:mod:`tuner.racing`): that depends on what is known when work is sent. With several
benches an outcome counts as soon as it is there.
"""
