"""What one device lacks of the element types that an experiment uses."""

from collections.abc import Iterator

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.check.names import bindings
from tuner.experiment.model import Experiment


def require_dtypes(experiment: Experiment, device: Device) -> None:
    """Raise :class:`SpecError` where an argument is of a type that the device cannot hold."""
    for name, dtype in _dtypes(experiment):
        if dtype not in device.dtypes:
            has = ", ".join(device.dtypes)
            raise SpecError(
                f"argument '{name}' is {dtype}, which {device.name} lacks; it has: {has}"
            )


def _dtypes(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Name and element type of every argument, on every shape."""
    typed = [(argument.name, argument.dtype) for argument in experiment.arguments if argument.dtype]
    if experiment.template:
        typed += [(buffer.name, buffer.dtype) for buffer in experiment.template.scratch]
    for _, binding in bindings(experiment):
        yield from ((name, str(binding.symbols.get(dtype, dtype))) for name, dtype in typed)
