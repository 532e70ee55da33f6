"""Whether a device supports the element types of an experiment."""

from collections.abc import Iterator

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.check.names import bindings
from tuner.experiment.model import Experiment


def require_dtypes(experiment: Experiment, device: Device) -> None:
    """Raise :class:`SpecError` if an argument has a type that the device does not support."""
    for name, dtype in _dtypes(experiment):
        if dtype not in device.dtypes:
            supported = ", ".join(device.dtypes)
            raise SpecError(
                f"argument '{name}' is {dtype}, which {device.name} does not support; "
                f"it supports: {supported}"
            )


def _dtypes(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Name and element type of every argument, on every shape."""
    typed = [(argument.name, argument.dtype) for argument in experiment.arguments if argument.dtype]
    if experiment.template:
        typed += [(buffer.name, buffer.dtype) for buffer in experiment.template.scratch]
    for _, binding in bindings(experiment):
        yield from ((name, str(binding.symbols.get(dtype, dtype))) for name, dtype in typed)
