"""``python -m cluster`` is ``kernelwright``, for a checkout that is not installed.

A job runs it with the first ``python`` on its node's PATH, which need not be the one of Ray.
"""

import sys

from cluster.unfit_python import unfit

if sys.version_info < (3, 11):  # noqa: UP036 - a node may have an older one
    sys.exit(unfit("Python 3.11 or later is needed"))
try:
    from cluster.cli.main import main
except ImportError as error:
    sys.exit(unfit(str(error)))

main()
