"""The domain: experiments, configuration spaces, search, journal, results, reports and exports.

It uses no device, no cluster and no language model.
"""
