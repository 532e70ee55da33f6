"""What holds for every test: no patterns of the user's are read or left.

One thread for linear algebra: matrices here are small, and on a busy machine the threads of
OpenBLAS spend their time waiting for each other. Set before NumPy is first imported.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["KERNELWRIGHT_HOME"] = ""
