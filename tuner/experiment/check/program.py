"""Programs: sources hold their entries, entries take the arguments, the language can do it."""

import ast
import keyword
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.backends.registry import backends, traits_of
from tuner.backends.traits import BackendTraits
from tuner.csource.indices import Indices
from tuner.csource.kernels import (
    Parameter,
    Signature,
    find_kernel,
    signatures,
    unsupported_parameters,
)
from tuner.csource.mangling import source_name
from tuner.csource.tree import without_comments
from tuner.experiment.arguments import item_bytes
from tuner.experiment.check.expressions import launches
from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.check.vectors import vector_problems
from tuner.experiment.contents import FromPython
from tuner.experiment.fields import PythonFunction
from tuner.experiment.model import (
    DTYPES,
    Argument,
    Experiment,
    Kernel,
    KernelBinary,
    Launch,
    Memset,
    ScratchArgument,
    Template,
)
from tuner.experiment.yaml_document import Path
from tuner.expressions import nearest

_ENTRY = re.compile(r"[A-Za-z_][\w:]*(?:<[\w:<>{}, *+-]*>)?")


@dataclass(frozen=True, slots=True)
class _Program:
    """The kernel or the template, and the arguments it may be called with."""

    root: Path
    subject: Kernel | Template
    arguments: dict[str, Argument | ScratchArgument]

    @property
    def passed(self) -> tuple[str, ...]:
        """What an entry is called with unless a launch says otherwise."""
        return tuple(
            name
            for name, argument in self.arguments.items()
            if not (isinstance(argument, Argument) and argument.kind == "constant")
        )


def check_parameters(experiment: Experiment) -> Iterator[Finding]:
    """The kernel that is launched takes nothing that no spec can pass."""
    kernel = experiment.kernel
    launched = {_base(step.entry or kernel.entry) for _, step in launches(("kernel",), kernel)}
    for name, parameter, what in unsupported_parameters(kernel.source.text, kernel.language):
        if name in launched:
            said = f"parameter '{parameter}' of {name} is {what}, which is not supported"
            yield Finding(("kernel", "entry"), said)


def check_programs(
    experiment: Experiment, found: list[Finding], *, exported: bool
) -> Iterator[Finding]:
    """Baseline, template, reference and fills; of an export only what its launches need.

    How they are called is left alone where ``found`` says that an argument is not what it should.
    """
    clear = not any(
        f.path[0] == "arguments" and f.path[2:] in (("name",), ("kind",)) for f in found
    )
    own: dict[str, Argument | ScratchArgument] = {a.name: a for a in experiment.arguments}
    baseline = _Program(("kernel",), experiment.kernel, own)
    yield from _program(experiment, baseline)
    miscalled = list(_calls(experiment, baseline)) if clear else []
    yield from miscalled
    if clear and not miscalled:
        if not exported:
            yield from _element_types(experiment, baseline)
            yield from _index_arrays(experiment, baseline)
        yield from _required_blocks(experiment, baseline.root)
    if template := experiment.template:
        appended = {**own, **{buffer.name: buffer for buffer in template.scratch}}
        variant = _Program(("template",), template, appended)
        yield from _program(experiment, variant)
        if clear and not miscalled:
            yield from _calls(experiment, variant)
    if experiment.reference and clear:
        given = [argument.name for argument in experiment.arguments if argument.is_given]
        yield from _function(("reference",), experiment.reference, given)
    for index, argument in enumerate(experiment.arguments):
        for key, fill in (("values", argument.values), ("initial", argument.initial)):
            if isinstance(fill, FromPython):
                path: Path = ("arguments", index, key, "python")
                yield from _function(path, fill.python, ["shape", "argument", "seed"])


def _program(experiment: Experiment, program: _Program) -> Iterator[Finding]:
    subject, root = program.subject, program.root
    if subject.launch and subject.launches:
        yield Finding((*root, "launches"), "give launch or launches, not both")
    elif not any(isinstance(step, Launch) for step in subject.steps):
        yield Finding(root, "missing key 'launch'", "launch")
    for index, step in enumerate(subject.launches):
        if isinstance(step, Memset):
            yield from _memset((*root, "launches", index), step, program)
    found = {signature.name: signature for signature in _signatures(experiment, subject)}
    text = "\n".join(map(without_comments, _texts(experiment, subject)))
    entries = [((*root, "entry"), subject.entry)]
    for path, launch in launches(root, subject):
        if launch.entry:
            entries.append(((*path, "entry"), launch.entry))
    if isinstance(subject, Kernel) and subject.binary:
        yield from _symbols(subject.binary, [entry for _, entry in entries])
    if not subject.entry:
        if any(isinstance(step, Launch) for step in subject.steps):
            yield Finding(root, "missing key 'entry': a launch names none of its own", "entry")
        entries = entries[1:]
    for path, entry in entries:
        problem = _entry_problem(entry, experiment, subject, found, text)
        if problem:
            yield Finding(path, problem)


def _calls(experiment: Experiment, program: _Program) -> Iterator[Finding]:
    subject, root = program.subject, program.root
    found = _signatures(experiment, subject)
    several = len(subject.launches) > 1
    traits = traits_of(experiment.kernel.language)
    for path, launch in launches(root, subject):
        unknown = [name for name in launch.arguments or () if name not in program.passed]
        for name in unknown:
            hint = nearest(name, program.passed) or f"; there are: {listed(program.passed)}"
            yield Finding((*path, "arguments"), f"no argument '{name}' can be passed{hint}")
        called = [s for s in found if s.name == _base(launch.entry or subject.entry)]
        if len(called) == 1 and called[0].certain and not unknown:
            passed = launch.arguments or program.passed
            said = _call_problem(called[0], passed, program.arguments, several, traits) or next(
                vector_problems(called[0], passed, program.arguments, experiment), None
            )
            if said:
                yield Finding(path if launch.arguments else (*root, "entry"), said)


def _element_types(experiment: Experiment, baseline: _Program) -> Iterator[Finding]:
    """Pointers to other elements than their arguments have, where a template derives from them.

    A given template has its own signature, which the source rules check. Unsigned integers of the
    same size may stand for the bits of any type.
    """
    if experiment.template:
        return
    places = {argument.name: index for index, argument in enumerate(experiment.arguments)}
    signatures = _signatures(experiment, experiment.kernel)
    for _, launch in launches(baseline.root, experiment.kernel):
        entry = _base(launch.entry or experiment.kernel.entry)
        called = [signature for signature in signatures if signature.name == entry]
        if len(called) != 1 or not called[0].certain:
            continue
        passed = launch.arguments or baseline.passed
        for parameter, name in zip(called[0].parameters, passed, strict=False):
            argument = baseline.arguments.get(name)
            if not isinstance(argument, Argument) or argument.kind in ("null", "struct"):
                continue
            generic = parameter.type in dict(called[0].template)
            if generic or not parameter.pointer or argument.dtype not in DTYPES:
                continue
            bits = f"uint{8 * item_bytes(argument.dtype)}"
            if parameter.dtype not in (None, argument.dtype, bits):
                said = f"points to {parameter.type}, the argument says {argument.dtype}"
                message = f"parameter '{parameter.name}' {said}"
                yield Finding(("arguments", places[name], "dtype"), message)


def _index_arrays(experiment: Experiment, baseline: _Program) -> Iterator[Finding]:
    """Integer inputs that index other arrays must say which values they hold."""
    kernel = experiment.kernel
    places = {argument.name: index for index, argument in enumerate(experiment.arguments)}
    used: dict[str, str] = {}
    for _, launch in launches(baseline.root, kernel):
        found = find_kernel(kernel.source.text, launch.entry or kernel.entry, kernel.language)
        if found is None or not found.signature.certain:
            continue
        names = [parameter.name for parameter in found.signature.parameters]
        passed = dict(zip(names, launch.arguments or baseline.passed, strict=False))
        for name, example in Indices(found).used_as_index.items():
            used.setdefault(passed.get(name, ""), example)
    for name, example in used.items():
        argument = baseline.arguments.get(name)
        if not isinstance(argument, Argument) or argument.range is not None:
            continue
        key = {"in": "values", "inout": "initial"}.get(argument.kind, "")
        drawn = key and getattr(argument, key) == "normal"
        if drawn and argument.dtype.startswith(("int", "uint")):
            message = (
                f"'{name}' is used as an index ({example}), so say which integers it holds: "
                f"{key}: {{integers: [0, LAST]}}, permutation, {{offsets: END}}, or those of a file"
            )
            yield Finding(("arguments", places[name]), message, key)


def _required_blocks(experiment: Experiment, root: Path) -> Iterator[Finding]:
    """A block of fixed size is the one that the kernel's attribute requires."""
    kernel = experiment.kernel
    for path, launch in launches(root, kernel):
        found = find_kernel(kernel.source.text, launch.entry or kernel.entry, kernel.language)
        required = Indices(found).required_block if found else ()
        if not required or any(axis.names or axis.device_names for axis in launch.block):
            continue
        block = tuple(int(axis.evaluate({})) for axis in launch.block)
        if (*block, 1, 1)[:3] != (*required, 1, 1)[:3]:
            wanted, given = (list(extents) for extents in (required, block))
            message = f"the kernel's reqd_work_group_size wants a block of {wanted}, not {given}"
            yield Finding((*path, "block"), message)


def _symbols(binary: KernelBinary, entries: list[str]) -> Iterator[Finding]:
    """Names in the binary belong to entries; those with placeholders cannot be told apart here."""
    for entry in binary.symbols:
        if entry not in entries and not any("{" in known for known in entries):
            hint = nearest(entry, entries) or f"; there are: {listed(entries)}"
            yield Finding(("kernel", "binary", "symbols", entry), f"no entry '{entry}'{hint}")


def _texts(experiment: Experiment, subject: Kernel | Template) -> Iterator[str]:
    """The source, and the headers that it may include."""
    yield subject.source.text
    yield from (text for _, text in experiment.kernel.headers)


def _signatures(experiment: Experiment, subject: Kernel | Template) -> tuple[Signature, ...]:
    language = experiment.kernel.language
    return tuple(s for text in _texts(experiment, subject) for s in signatures(text, language))


def _memset(path: Path, step: Memset, program: _Program) -> Iterator[Finding]:
    argument = program.arguments.get(step.memset)
    if argument is None:
        hint = nearest(step.memset, program.arguments)
        yield Finding((*path, "memset"), f"no argument '{step.memset}'{hint}")
    elif isinstance(argument, Argument) and argument.kind not in ("out", "inout", "scratch"):
        said = f"'{step.memset}' is an argument of kind {argument.kind}: it may not be written"
        yield Finding((*path, "memset"), said)


def _base(entry: str) -> str:
    return entry.partition("<")[0].rpartition("::")[2]


def _entry_problem(
    entry: str,
    experiment: Experiment,
    subject: Kernel | Template,
    found: dict[str, Signature],
    text: str,
) -> str | None:
    if not _ENTRY.fullmatch(entry):
        return f"'{entry}' is not a kernel's name"
    traits = traits_of(experiment.kernel.language)
    if not traits.cpp_names and not entry.isidentifier():
        return f"'{entry}': {traits.title} has no C++ names; give the kernel's plain name"
    known = {*experiment.shapes.tune[0].symbols}
    if isinstance(subject, Template):
        known |= subject.parameters.keys()
    for name in re.findall(r"\{([^{}]*)\}", entry):
        if name not in known:
            return f"'{{{name}}}' is neither a parameter nor a symbol{nearest(name, known)}"
    base = _base(entry)
    if base.startswith("_Z") and base not in found:
        return (
            f"'{entry}' is a name in a binary: give the source's, such as '{source_name(entry)}',"
            " and this one under kernel.binary.symbols"
        )
    if base not in found and not re.search(rf"\b{base}\b", text):
        there = nearest(base, found) or f"; there are: {listed(found)}"
        return f"no kernel '{base}' in {subject.source.name}{there}"
    if base in found and found[base].template and "<" not in entry:
        names = ", ".join(f"{{{name}}}" for name, _ in found[base].template)
        return f"'{base}' is a template: name an instance, such as {base}<{names}>"
    return _other_language(subject.source.name, text, traits)


def _other_language(file: str, text: str, traits: BackendTraits) -> str | None:
    """Says that a source has kernels of another backend alone; plain words may be variables."""
    words = frozenset(re.findall(r"\w+", text))
    if words.intersection(traits.kernel_qualifiers):
        return None
    for other in backends():
        mark = other.kernel_qualifiers[0]
        if mark in words and mark.startswith("__"):
            said = f"{file} has a kernel of {other.title} ({mark})"
            return f"{said}: write `language: {other.name}`"
    return None


def _call_problem(
    signature: Signature,
    passed: tuple[str, ...],
    arguments: dict[str, Argument | ScratchArgument],
    several: bool,
    traits: BackendTraits,
) -> str | None:
    parameters = signature.parameters
    names = [parameter.name for parameter in parameters]
    if len(parameters) != len(passed):
        problem = (
            f"{signature.name} takes {len(names)} parameters ({listed(names)}), but it would be"
            f" passed {len(passed)} arguments ({listed(passed)})"
        )
        if local := [parameter.name for parameter in parameters if parameter.local]:
            problem += (
                f"; local memory ({listed(local)}) is not passed: declare it inside the kernel"
            )
        return problem
    if sorted(names) == sorted(passed) and names != list(passed):
        return f"{signature.name} takes its parameters in the order {listed(names)}"
    for parameter, name in zip(parameters, passed, strict=True):
        said = _pass_problem(signature, parameter, arguments[name], several, traits)
        if said:
            return f"parameter '{parameter.name}' of {signature.name} {said}"
    return None


def _pass_problem(
    signature: Signature,
    parameter: Parameter,
    argument: Argument | ScratchArgument,
    several: bool,
    traits: BackendTraits,
) -> str | None:
    if parameter.local:
        return "is local memory: declare it inside the kernel"
    kind = argument.kind if isinstance(argument, Argument) else "scratch"
    scalar, by_value = kind == "scalar", kind in ("scalar", "struct")
    generic = parameter.type in dict(signature.template)
    if by_value and parameter.pointer:
        return f"is a pointer, but '{argument.name}' is a {kind}"
    if not by_value and not parameter.pointer and parameter.dtype:
        return f"is a {parameter.type}, but '{argument.name}' is a buffer"
    if kind == "struct" and parameter.dtype and parameter.lanes == 1 and not generic:
        return f"is a {parameter.type}, but '{argument.name}' is a struct"
    if scalar and parameter.lanes > 1:
        elements = traits.vector_elements(parameter.lanes)
        return f"is a {parameter.type}: pass '{argument.name}' as a struct of {elements}"
    written = isinstance(argument, Argument) and argument.is_output
    if written and parameter.const and not several and not generic:
        return f"is const, so '{argument.name}' can never be written"
    if not scalar or generic or parameter.dtype is None or argument.dtype not in DTYPES:
        return None
    sizes = item_bytes(parameter.dtype), item_bytes(argument.dtype)
    floats = [dtype.startswith(("float", "bfloat")) for dtype in (parameter.dtype, argument.dtype)]
    if sizes[0] != sizes[1] or floats[0] != floats[1]:
        return f"is {parameter.dtype} ({parameter.type}), but '{argument.name}' is {argument.dtype}"
    return None


def _function(path: Path, function: PythonFunction, given: list[str]) -> Iterator[Finding]:
    """The file is Python, holds the function, and the function takes what it will be given."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(function.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        said = error.msg if isinstance(error, SyntaxError) else "cannot be read"
        yield Finding(path, f"{function.file}{where}: {said}")
        return
    defined = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    found = defined.get(function.function)
    if found is None:
        hint = nearest(function.function, defined) or f"; there are: {listed(defined)}"
        yield Finding(path, f"no function '{function.function}' in {function.file}{hint}")
        return
    positional = [*found.args.posonlyargs, *found.args.args]
    required = positional[: len(positional) - len(found.args.defaults)]
    for parameter in required:
        if parameter.arg not in given:
            words = [name for name in given if keyword.iskeyword(name)]
            others = f"; there are: {listed(given)}"
            if words:
                others = f"; take **rest, and rest['{words[0]}'], which no parameter can be called"
            hint = nearest(parameter.arg, [name for name in given if name not in words]) or others
            said = f"{function.function}() wants '{parameter.arg}', which it is not given{hint}"
            yield Finding(path, said)
