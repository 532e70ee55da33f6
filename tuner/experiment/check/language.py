"""What a language lacks of the format: OpenCL some of it, CUDA none."""

from collections.abc import Iterator

from tuner.experiment.check.expressions import launches
from tuner.experiment.check.finding import Finding
from tuner.experiment.check.names import bindings
from tuner.experiment.model import Experiment, Kernel, Template
from tuner.experiment.yaml_document import Path
from tuner.expressions import Expression

_NO_BYTES = Expression.constant(0)


def check_language(experiment: Experiment) -> Iterator[Finding]:
    """What OpenCL lacks; CUDA has all of the format."""
    if experiment.kernel.language != "opencl":
        return
    subjects: list[tuple[Path, Kernel | Template]] = [(("kernel",), experiment.kernel)]
    if experiment.template:
        subjects.append((("template",), experiment.template))
    for root, subject in subjects:
        for path, launch in launches(root, subject):
            if launch.cooperative:
                yield Finding((*path, "cooperative"), "OpenCL has no cooperative launch")
            if launch.shared_bytes != _NO_BYTES:
                said = "OpenCL kernels declare their local memory themselves"
                yield Finding((*path, "shared_bytes"), said)
    for index, argument in enumerate(experiment.arguments):
        if argument.kind == "constant":
            said = "OpenCL cannot set a program's constants; pass it with kind: in"
            yield Finding(("arguments", index, "kind"), said)
        if argument.dtype == "bfloat16":
            yield Finding(("arguments", index, "dtype"), "OpenCL has no bfloat16")
    for path, binding in bindings(experiment):
        for name, value in binding.symbols.items():
            if value == "bfloat16":
                yield Finding((*path, name), "OpenCL has no bfloat16")
