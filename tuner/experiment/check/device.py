"""Whether a device supports the element types and launches of an experiment."""

from collections.abc import Iterator

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.check.expressions import launches
from tuner.experiment.check.names import bindings
from tuner.experiment.model import NEVER, Experiment, Kernel, Template


def require_dtypes(experiment: Experiment, device: Device) -> None:
    """Raise :class:`SpecError` if an argument has a type that the device does not support."""
    for name, dtype in _dtypes(experiment):
        if dtype not in device.dtypes:
            supported = ", ".join(device.dtypes)
            raise SpecError(
                f"argument '{name}' is {dtype}, which {device.name} does not support; "
                f"it supports: {supported}"
            )


def require_launches(experiment: Experiment, device: Device) -> None:
    """Raise :class:`SpecError` if a launch always needs an attribute that the device lacks.

    One that depends on parameters is left to the search, which leaves it out there.
    """
    if not device.compute_capability or device.has_launch_attributes:
        return
    subjects: list[tuple[str, Kernel | Template]] = [("kernel", experiment.kernel)]
    if experiment.template:
        subjects.append(("template", experiment.template))
    for root, subject in subjects:
        for path, launch in launches((root,), subject):
            place = ".".join(map(str, path))
            lacks = f"needs compute capability 9.0, and {device.name} has {_version(device)}"
            if launch.dependent != NEVER and not launch.dependent.names:
                raise SpecError(f"{place}.dependent: a dependent launch {lacks}")
            if launch.cluster and not any(axis.names for axis in launch.cluster):
                raise SpecError(f"{place}.cluster: a cluster {lacks}")


def require_memory(experiment: Experiment, device: Device) -> None:
    """Raise :class:`SpecError` if the arguments of a shape do not fit the device's memory."""
    for path, binding in bindings(experiment):
        arguments = resolve_arguments(experiment, binding.symbols)
        needed = sum(argument.size for argument in arguments if argument.is_buffer)
        if device.memory_bytes and needed > device.memory_bytes:
            raise SpecError(
                f"{'.'.join(map(str, path))}: the arguments at {binding} take "
                f"{needed / 2**30:,.1f} GiB, and {device.name} has "
                f"{device.memory_bytes / 2**30:,.1f} GiB"
            )


def _version(device: Device) -> str:
    return f"{device.compute_capability // 10}.{device.compute_capability % 10}"


def _dtypes(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Name and element type of every argument, on every shape."""
    typed = [(argument.name, argument.dtype) for argument in experiment.arguments if argument.dtype]
    if experiment.template:
        typed += [(buffer.name, buffer.dtype) for buffer in experiment.template.scratch]
    for _, binding in bindings(experiment):
        yield from ((name, str(binding.symbols.get(dtype, dtype))) for name, dtype in typed)
