def total(x, **_sizes):
    """The sums of the rows of ``x`` [rows, columns]."""
    return x.sum(axis=1)
