"""The agents around the search: planning, generation, tuning and testing, and their language model.

Owns what a model is asked, what is believed of its replies, and the loop of rounds. Knows the
domain (``tuner``) and nothing of devices, workers or Ray.
"""
