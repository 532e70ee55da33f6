"""What the domain has to know of each backend, as one record of plain data per backend."""
