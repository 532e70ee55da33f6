"""What a language supports: its whitelist of compiler options, and features that OpenCL lacks."""

from collections.abc import Iterator

from tuner.device import Backend
from tuner.experiment.check.expressions import launches
from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.check.names import bindings
from tuner.experiment.model import NO_BYTES, CompilerFlag, Experiment, Kernel, Template
from tuner.experiment.yaml_document import Path

_TRUTH = ("true", "false")
_NONE: tuple[str, ...] = ()
_NUMBER = "--maxrregcount"

# Options by language, and the values that each takes.
_OPTIONS: dict[Backend, dict[str, tuple[str, ...]]] = {
    "cuda": {
        "--use_fast_math": _NONE,
        "--extra-device-vectorization": _NONE,
        "--restrict": _NONE,
        "--device-int128": _NONE,
        "--generate-line-info": _NONE,
        "-lineinfo": _NONE,
        _NUMBER: tuple(map(str, range(16, 256))),
        "--fmad": _TRUTH,
        "--ftz": _TRUTH,
        "--prec-div": _TRUTH,
        "--prec-sqrt": _TRUTH,
        "--std": ("c++11", "c++14", "c++17", "c++20"),
    },
    "opencl": {
        "-cl-fast-relaxed-math": _NONE,
        "-cl-unsafe-math-optimizations": _NONE,
        "-cl-finite-math-only": _NONE,
        "-cl-mad-enable": _NONE,
        "-cl-no-signed-zeros": _NONE,
        "-cl-denorms-are-zero": _NONE,
        "-cl-single-precision-constant": _NONE,
        "-cl-fp32-correctly-rounded-divide-sqrt": _NONE,
        "-cl-strict-aliasing": _NONE,
        "-cl-opt-disable": _NONE,
        "-cl-uniform-work-group-size": _NONE,
        "-w": _NONE,
        "-cl-std": ("CL1.0", "CL1.1", "CL1.2", "CL2.0", "CL3.0"),
    },
}
_SPELLINGS = {
    "-use_fast_math": "--use_fast_math",
    "-std": "--std",
    "-maxrregcount": "--maxrregcount",
}


def check_features(experiment: Experiment) -> Iterator[Finding]:
    """Features that OpenCL lacks; CUDA has them all."""
    if experiment.kernel.language != "opencl":
        return
    subjects: list[tuple[Path, Kernel | Template]] = [(("kernel",), experiment.kernel)]
    if experiment.template:
        subjects.append((("template",), experiment.template))
    for root, subject in subjects:
        for path, launch in launches(root, subject):
            if launch.cooperative:
                yield Finding((*path, "cooperative"), "OpenCL has no cooperative launch")
            if launch.shared_bytes != NO_BYTES:
                message = "OpenCL kernels declare their local memory themselves"
                yield Finding((*path, "shared_bytes"), message)
    for index, argument in enumerate(experiment.arguments):
        if argument.kind == "constant":
            message = "OpenCL cannot set a program's constants; pass it with kind: in"
            yield Finding(("arguments", index, "kind"), message)
        if argument.dtype == "bfloat16":
            yield Finding(("arguments", index, "dtype"), "OpenCL has no bfloat16")
    for path, binding in bindings(experiment):
        for name, value in binding.symbols.items():
            if value == "bfloat16":
                yield Finding((*path, name), "OpenCL has no bfloat16")


def check_options(experiment: Experiment) -> Iterator[Finding]:
    """Every option is on the whitelist of the kernel's language."""
    language = experiment.kernel.language
    for index, option in enumerate(experiment.kernel.options):
        yield from _option(("kernel", "options", index), option, language)
    template = experiment.template
    for index, item in enumerate((template.options if template else None) or ()):
        path: Path = ("template", "options", index)
        if isinstance(item, CompilerFlag):
            yield from _flag((*path, "flag"), item, language)
        else:
            yield from _option(path, item, language)


def _option(path: Path, option: str, language: Backend) -> Iterator[Finding]:
    name, equals, value = option.partition("=")
    if option.startswith("-D"):
        yield Finding(path, f"'{option}': macros are given as defines of a template, or by #define")
        return
    known = _OPTIONS[language]
    if name not in known:
        yield Finding(path, _unknown(option, name, language))
        return
    values = known[name]
    if equals and not values:
        yield Finding(path, f"'{name}' takes no value")
    elif values and value not in values:
        some = values if len(values) <= 5 else (values[0], "…", values[-1])
        yield Finding(path, f"'{option}': {name}=VALUE wants one of {listed(some)}")


def _flag(path: Path, option: CompilerFlag, language: Backend) -> Iterator[Finding]:
    if option.value is None or option.flag not in _OPTIONS[language]:
        yield from _option(path, option.flag, language)
    elif option.flag != _NUMBER:
        yield Finding(path, f"'{option.flag}' takes no number as its value; use 'when'")


def _unknown(option: str, name: str, language: Backend) -> str:
    if name in _SPELLINGS and _SPELLINGS[name] in _OPTIONS[language]:
        return f"write {_SPELLINGS[name]} for '{name}'"
    known = ", ".join(_OPTIONS[language])
    return f"'{option}' is not among the options allowed for {language}: {known}"
