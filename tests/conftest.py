"""What holds for every test.

One thread for linear algebra: matrices here are small, and on a busy machine the threads of
OpenBLAS spend their time waiting for each other. Set before NumPy is first imported.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
