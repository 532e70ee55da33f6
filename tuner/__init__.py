"""The domain: what is tuned, which configurations exist, how they are searched, what was found.

Owns the spec, the space, the search, the session, the store and the report. Knows no device, no
cluster and no language model: those reach it as plain data.
"""
