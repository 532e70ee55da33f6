"""What a backend supports: compiler options, and features of the spec."""

from collections.abc import Iterator

from tuner.backends.registry import traits_of
from tuner.backends.traits import BackendTraits, Feature
from tuner.experiment.check.expressions import launches
from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.check.names import bindings
from tuner.experiment.model import (
    DTYPES,
    NEVER,
    NO_BYTES,
    CompilerFlag,
    Experiment,
    Kernel,
    Template,
)
from tuner.experiment.yaml_document import Path


def check_features(experiment: Experiment) -> Iterator[Finding]:
    """Features that the spec uses and the backend lacks."""
    traits = traits_of(experiment.kernel.language)
    for feature, path in _features(experiment):
        if feature in traits.unsupported:
            yield Finding(path, traits.unsupported[feature])
    for dtype, path in _dtypes(experiment):
        if dtype in DTYPES and dtype not in traits.type_names:
            yield Finding(path, f"{traits.title} has no {dtype}")


def _features(experiment: Experiment) -> Iterator[tuple[Feature, Path]]:
    """The features that not every backend has, where the spec uses them."""
    subjects: list[tuple[Path, Kernel | Template]] = [(("kernel",), experiment.kernel)]
    if experiment.template:
        subjects.append((("template",), experiment.template))
    for root, subject in subjects:
        for path, launch in launches(root, subject):
            if launch.cooperative:
                yield "cooperative", (*path, "cooperative")
            if launch.dependent != NEVER:
                yield "dependent", (*path, "dependent")
            if launch.cluster:
                yield "cluster", (*path, "cluster")
            if launch.shared_bytes != NO_BYTES:
                yield "dynamic_shared", (*path, "shared_bytes")
    if experiment.kernel.binary:
        yield "binary", ("kernel", "binary")
    if experiment.objective != "time":
        yield "energy", ("objective",)
    for index, argument in enumerate(experiment.arguments):
        if argument.kind == "constant":
            yield "constant", ("arguments", index, "kind")


def _dtypes(experiment: Experiment) -> Iterator[tuple[str, Path]]:
    """The element types that the spec names, where it does."""
    for index, argument in enumerate(experiment.arguments):
        yield argument.dtype, ("arguments", index, "dtype")
        for number, field in enumerate(argument.fields):
            yield field.dtype, ("arguments", index, "fields", number, "dtype")
    for path, binding in bindings(experiment):
        for name, value in binding.symbols.items():
            yield str(value), (*path, name)


def check_options(experiment: Experiment) -> Iterator[Finding]:
    """Every option is on its backend's whitelist, with a value that it takes."""
    backend = traits_of(experiment.kernel.language)
    if experiment.kernel.compiler and not backend.cpp_names:
        yield Finding(("kernel", "compiler"), f"{backend.title} has one compiler: leave it out")
    for index, option in enumerate(experiment.kernel.options):
        yield from _option(("kernel", "options", index), option, backend)
    template = experiment.template
    for index, item in enumerate((template.options if template else None) or ()):
        path: Path = ("template", "options", index)
        if isinstance(item, CompilerFlag):
            yield from _flag((*path, "flag"), item, backend)
        else:
            yield from _option(path, item, backend)


def _option(path: Path, option: str, backend: BackendTraits) -> Iterator[Finding]:
    name, equals, value = option.partition("=")
    if option.startswith("-D"):
        yield Finding(path, f"'{option}': write macros as defines of a template, or as #define")
        return
    known = backend.options
    if name not in known:
        yield Finding(path, _unknown(option, name, backend))
        return
    values = known[name]
    if equals and not values:
        yield Finding(path, f"'{name}' takes no value")
    elif values and value not in values:
        some = values if len(values) <= 5 else (values[0], "…", values[-1])
        yield Finding(path, f"'{option}': {name}=VALUE takes one of {listed(some)}")


def _flag(path: Path, option: CompilerFlag, backend: BackendTraits) -> Iterator[Finding]:
    if option.value is None or option.flag not in backend.options:
        yield from _option(path, option.flag, backend)
    elif option.flag != backend.register_cap_flag:
        yield Finding(path, f"'{option.flag}' does not take a number; use 'when'")


def _unknown(option: str, name: str, backend: BackendTraits) -> str:
    spelling = f"--{name.lstrip('-')}"
    if spelling in backend.options:
        return f"write {spelling} for '{name}'"
    known = ", ".join(backend.options)
    return f"'{option}' is not among the options allowed for {backend.name}: {known}"
