"""Whether a device is free for a bench: one that another user works on is left to them."""

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from workers.backends.registry import adapter_of


def if_free(device: Device, identity: str) -> Device:
    """The device with this identity, unless another user works on it.

    Raises:
        EnvironmentProblem: one does; the message names user and process.
    """
    occupants = adapter_of(device.backend).occupants
    if occupants is not None and (found := occupants(identity)):
        users = ", ".join(map(str, found))
        raise EnvironmentProblem(f"{device.name} is left alone, since it is in use by {users}")
    return device
