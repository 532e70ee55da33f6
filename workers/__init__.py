"""What touches compilers and devices: compile workers, device backends, the isolated bench.

Knows nothing of clusters or searches: does work (:mod:`tuner.engine.work`) and answers with facts.
"""
