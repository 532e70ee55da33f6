"""The exceptions of all packages, with the exit code of each.

A candidate's failure is a value (:class:`tuner.trial.Rejected`), never an exception.
"""


class KernelwrightError(Exception):
    """Ends a command with a message instead of a traceback."""

    exit_code = 1


class SpecError(KernelwrightError):
    """The experiment, the template or the command line is invalid; the message names the place."""

    exit_code = 2


class EnvironmentProblem(KernelwrightError):
    """A device, driver, package, writable folder or lock is unavailable."""

    exit_code = 3


class RunInterrupted(EnvironmentProblem):
    """A run lost its driver, its workers or its disk; it can go on from what it finished."""


class JournalUnwritable(RunInterrupted):
    """A fact or step of a run cannot be written, say to a full disk; those before it are kept."""


class NothingValid(KernelwrightError):
    """No configuration is valid, or the baseline was rejected."""

    exit_code = 4


class Preempted(KernelwrightError):
    """The machine is about to be taken away; the run can be resumed elsewhere."""

    exit_code = 143


class DeviceNeeded(KernelwrightError):
    """The next step needs a device that this process does not have; the run can be resumed."""

    exit_code = 6
