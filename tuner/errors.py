"""The one error root, and the exit code that each kind of failure ends a command with.

A candidate's failure is a value (:class:`tuner.trial.Rejected`), never one of these: an exception
means that the machinery or its user went wrong.
"""


class KernelwrightError(Exception):
    """Anything that ends a command with one clear message instead of a traceback."""

    exit_code = 1


class SpecError(KernelwrightError):
    """The experiment, the template or the command line is wrong; the message names the place."""

    exit_code = 2


class EnvironmentProblem(KernelwrightError):
    """The machine lacks something: a device, a driver, a package, a writable folder, a lock."""

    exit_code = 3


class NothingValid(KernelwrightError):
    """No configuration was valid, or the baseline itself cannot be trusted."""

    exit_code = 4


class DeviceNeeded(KernelwrightError):
    """The next step needs a device that this process has not; another can go on with the run."""

    exit_code = 6
