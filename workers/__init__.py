"""What touches compilers and devices: compile workers, device backends, the isolated bench.

Knows nothing of clusters or searches: it takes jobs (:mod:`tuner.engine.fleet`) and returns
outcomes.
"""
