"""The agents around the search: planning, drafting, the loop of rounds, and the language models.

Owns what a model is told and how its replies are read and checked. Knows the domain (``tuner``) and
nothing of devices, workers or Ray.
"""
