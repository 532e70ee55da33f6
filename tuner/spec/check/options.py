"""Compiler options: the whitelist by language."""

import re
from collections.abc import Iterator

from tuner.device import Backend
from tuner.spec.check.finding import Finding
from tuner.spec.experiment import CompilerFlag, Experiment
from tuner.spec.yaml_document import Path

# Options by language: for those that take a value its pattern, for the rest None.
_OPTIONS: dict[Backend, dict[str, str | None]] = {
    "cuda": {
        "--use_fast_math": None,
        "--extra-device-vectorization": None,
        "--restrict": None,
        "--device-int128": None,
        "--generate-line-info": None,
        "-lineinfo": None,
        "--maxrregcount": r"\d{1,3}",
        "--fmad": "true|false",
        "--ftz": "true|false",
        "--prec-div": "true|false",
        "--prec-sqrt": "true|false",
        "--std": r"c\+\+(?:11|14|17|20)",
    },
    "opencl": {
        "-cl-fast-relaxed-math": None,
        "-cl-unsafe-math-optimizations": None,
        "-cl-finite-math-only": None,
        "-cl-mad-enable": None,
        "-cl-no-signed-zeros": None,
        "-cl-denorms-are-zero": None,
        "-cl-single-precision-constant": None,
        "-cl-fp32-correctly-rounded-divide-sqrt": None,
        "-cl-strict-aliasing": None,
        "-cl-opt-disable": None,
        "-cl-uniform-work-group-size": None,
        "-w": None,
        "-cl-std": r"CL(?:1\.[0-2]|2\.0|3\.0|C\+\+)",
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
    pattern = known[name]
    if pattern is None and equals:
        yield Finding(path, f"'{name}' takes no value")
    elif pattern is not None and not re.fullmatch(pattern, value):
        yield Finding(path, f"'{option}': {name} is written {name}=VALUE, VALUE like {pattern}")


def _flag(path: Path, option: CompilerFlag, language: Backend) -> Iterator[Finding]:
    if option.value is None or option.flag not in _OPTIONS[language]:
        yield from _option(path, option.flag, language)
    elif option.flag != "--maxrregcount":
        yield Finding(path, f"'{option.flag}' takes no number as its value; use 'when'")


def _unknown(option: str, name: str, language: Backend) -> str:
    if name in _SPELLINGS and _SPELLINGS[name] in _OPTIONS[language]:
        return f"write {_SPELLINGS[name]} for '{name}'"
    known = ", ".join(_OPTIONS[language])
    return f"'{option}' is not among the options allowed for {language}: {known}"
