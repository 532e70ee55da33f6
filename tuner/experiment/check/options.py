"""Compiler options: the whitelist by language."""

from collections.abc import Iterator

from tuner.device import Backend
from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.model import CompilerFlag, Experiment
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
