"""Writes a spec folder from a kernel's text and the arrays that a program launches it with.

The kernel's text is the template; the baseline is the same text behind macros with the parameters'
baseline values.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tuner.backends.registry import backends, traits_of
from tuner.device import Backend
from tuner.drafts.tune_kernel import parameter_value
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.check.names import nearest_dtype
from tuner.experiment.model import DTYPES
from tuner.files import write_whole
from tuner.trial import Value

_MARK = "# Written by kernelwright.write_spec, which replaces it.\n"

Array = np.ndarray[Any, np.dtype[Any]] | np.generic
"""An array argument, or a scalar with its type."""


def write_spec(
    folder: Path,
    *,
    language: Backend,
    source: str,
    entry: str,
    arguments: Mapping[str, Array],
    outputs: Collection[str],
    updated: Collection[str],
    grid: str | Sequence[str],
    block: str | Sequence[str],
    parameters: Mapping[str, Sequence[Value]],
    constraints: Sequence[str],
    baseline: Mapping[str, Value],
    reference: Callable[..., object] | None,
) -> Path:
    """Write ``spec.yaml`` and the files that it names; return its path. See ``kernelwright``.

    Raises:
        SpecError: an argument has no form in a spec.
        EnvironmentProblem: the folder holds files of others, or cannot be written.
    """
    for where, given in (
        ("arguments", arguments),
        ("parameters", parameters),
        ("baseline", baseline),
    ):
        if not isinstance(given, Mapping):
            raise SpecError(f"{where}: it is a {type(given).__name__}: pass a dict, by name")
    if not isinstance(source, str):
        raise SpecError(f"source: it is a {type(source).__name__}: pass the kernel's text")
    outputs, updated = _plain(outputs, "outputs"), _plain(updated, "updated")
    parameters = {
        name: _plain(values, f"parameters: {name}") for name, values in parameters.items()
    }
    baseline = {
        name: parameter_value(value, f"baseline: {name}") for name, value in baseline.items()
    }
    for name in (*outputs, *updated):
        if not isinstance(arguments.get(name), np.ndarray):
            raise SpecError(f"outputs, updated: '{name}' is no array among the arguments")
    if unknown := baseline.keys() - parameters.keys():
        raise SpecError(f"baseline: {min(unknown)!r} is none of the parameters")
    if language not in (names := [backend.name for backend in backends()]):
        raise SpecError(f"language={language!r}: there are: {', '.join(names)}")
    start = {name: baseline.get(name, values[0]) for name, values in parameters.items() if values}
    entries = [_argument(name, value, outputs, updated) for name, value in arguments.items()]
    sizes = {name: int(value) for name, value in arguments.items() if _is_size(value)}
    if not sizes:
        raise SpecError(
            "arguments: no integer scalar names the shape: add one to the kernel, such as "
            "n=np.int32(4096)"
        )
    referred = {} if reference is None else {"reference.py": _source_of(reference)}
    texts = parameterised_spec(
        language=language,
        source=source,
        entry=entry,
        arguments=entries,
        sizes=sizes,
        grid=_plain(grid, "grid"),
        block=_plain(block, "block"),
        parameters=parameters,
        constraints=_plain(constraints, "constraints"),
        baseline=start,
        reference=reference and ("reference.py", reference.__name__),
    )
    texts["spec.yaml"] = _MARK + texts["spec.yaml"]
    texts |= referred
    arrays = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, np.ndarray) and name not in outputs
    }
    write_folder(folder, _MARK, texts, arrays)
    return folder / "spec.yaml"


def parameterised_spec(
    *,
    language: Backend,
    source: str,
    entry: str,
    arguments: Sequence[Mapping[str, object]],
    sizes: Mapping[str, Value],
    grid: Sequence[Value],
    block: Sequence[Value],
    parameters: Mapping[str, Sequence[Value]],
    constraints: Sequence[Value],
    baseline: Mapping[str, Value],
    reference: tuple[str, str] | None = None,
    options: Sequence[str] = (),
) -> dict[str, str]:
    """The spec and both sources of a kernel with parameters, by file name.

    Args:
        language: of the source.
        source: the kernel's text, which uses the parameters as macros.
        entry: the kernel's name, and the spec's.
        arguments: as a spec has them.
        sizes: the one tune shape.
        grid: expressions over sizes and parameters.
        block: the same.
        parameters: their values by name.
        constraints: conditions on them.
        baseline: a value of each parameter.
        reference: the file and the name of the reference function.
        options: of the compiler.
    """
    launch = {"grid": list(grid), "block": list(block)}
    suffix = traits_of(language).suffixes[0]
    kernel: dict[str, object] = {
        "language": language,
        "source": f"baseline{suffix}",
        "entry": entry,
        "launch": {axis: [_bound(one, baseline) for one in launch[axis]] for axis in launch},
    }
    if options:
        kernel["options"] = list(options)
    spec: dict[str, object] = {
        "version": 1,
        "name": entry,
        "kernel": kernel,
        "arguments": list(arguments),
        "shapes": {"tune": [dict(sizes)]},
    }
    if reference is not None:
        spec["reference"] = ":".join(reference)
    spec["template"] = {
        "source": f"template{suffix}",
        "entry": entry,
        "parameters": {name: list(values) for name, values in parameters.items()},
        "constraints": list(constraints),
        "launch": launch,
    }
    return {
        f"baseline{suffix}": _defines(parameters, baseline) + source,
        f"template{suffix}": source,
        "spec.yaml": yaml.safe_dump(spec, sort_keys=False),
    }


def _plain(given: object, where: str) -> list[Any]:
    """Several values, or one alone, as bools, whole numbers and texts of Python, not of NumPy.

    Raises:
        SpecError: one is none of these.
    """
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    return [parameter_value(one, where) for one in several]


def _is_size(value: object) -> bool:
    return isinstance(value, np.integer) and not isinstance(value, np.timedelta64)


def _argument(
    name: str, value: Array, outputs: Collection[str], updated: Collection[str]
) -> dict[str, object]:
    """The entry of the spec's ``arguments``.

    Raises:
        SpecError: the value has no element type that kernels have, or the name is none.
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise SpecError(f"arguments: {name!r} is no name: write the kernel's own names")
    if not isinstance(value, np.ndarray | np.generic):
        raise SpecError(
            f"arguments: '{name}' is a {type(value).__name__}: pass a NumPy array, or a scalar "
            "with its type, such as np.int32(3) or np.float32(0.5)"
        )
    if (dtype := str(value.dtype)) not in DTYPES:
        raise SpecError(
            f"arguments: '{name}' has the dtype {dtype}: convert it, such as with "
            f"{name}.astype(np.float32){nearest_dtype(dtype)}"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise SpecError(f"arguments: '{name}' is masked: pass {name}.filled(…)")
    if isinstance(value, np.ndarray):
        if not value.ndim:
            raise SpecError(
                f"arguments: '{name}' is an array without axes: pass {name}[()] for a scalar, or "
                f"{name}.reshape(1) for an array of one element"
            )
        found: dict[str, object] = {
            "name": name,
            "kind": "out" if name in outputs else "inout" if name in updated else "in",
            "dtype": dtype,
            "shape": list(value.shape),
        }
        if name not in outputs:
            found["initial" if name in updated else "values"] = {"file": _file_of(name)}
        return found
    number = name if _is_size(value) else value.item()
    return {"name": name, "kind": "scalar", "dtype": dtype, "value": number}


def _file_of(name: str) -> str:
    return f"data/{name}.npy"


def _bound(expression: Value, values: Mapping[str, Value]) -> str:
    """A launch's expression with the parameters' values in place of their names."""
    return re.sub(
        r"\b[A-Za-z_]\w*", lambda found: str(values.get(found[0], found[0])), str(expression)
    )


def _defines(parameters: Mapping[str, Sequence[Value]], values: Mapping[str, Value]) -> str:
    """The macros that a template's build gets, as lines."""
    lines = []
    for name, value in values.items():
        choices = parameters[name]
        if isinstance(value, str):
            if value not in choices:
                raise SpecError(f"baseline: {name} has no value {value!r}")
            lines += [f"#define {name}_{each} {index}" for index, each in enumerate(choices)]
            value = choices.index(value)
        lines.append(f"#define {name} {int(value)}")
    return "".join(f"{line}\n" for line in lines)


def _source_of(reference: Callable[..., object]) -> str:
    """A module with the function alone.

    Raises:
        SpecError: its source is not known, or it is a lambda.
    """
    try:
        text = textwrap.dedent(inspect.getsource(reference))
    except (OSError, TypeError):
        text = ""
    if not (text.startswith("def ") and hasattr(reference, "__name__")):
        raise SpecError(
            "reference: the source of the function cannot be read: pass a function that is "
            "written with def, undecorated, in a file or a notebook"
        )
    return f"import numpy as np\n\n\n{text}"


def write_folder(
    folder: Path,
    mark: str,
    texts: Mapping[str, str],
    arrays: Mapping[str, np.ndarray[Any, np.dtype[Any]]],
) -> None:
    """Write all files; replace those of an earlier call, whose spec begins with ``mark``.

    Raises:
        SpecError: a text is not valid Unicode.
        EnvironmentProblem: the folder holds something else, or cannot be written.
    """
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise SpecError(f"{name}:{line} would not be valid Unicode: {error.reason}") from None
    spec = folder / "spec.yaml"
    try:
        ours = spec.is_file() and spec.read_text(errors="replace").startswith(mark)
        if folder.exists() and not ours and any(folder.iterdir()):
            raise EnvironmentProblem(f"{folder} holds other files: name a folder of its own")
        (folder / "data" if arrays else folder).mkdir(parents=True, exist_ok=True)
        # First, so that after an interruption the folder is known as ours.
        write_whole(spec, texts["spec.yaml"])
        for name, array in arrays.items():
            np.save(folder / _file_of(name), np.ascontiguousarray(array), allow_pickle=False)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {folder}: {error.strerror}") from None
    for name, text in texts.items():
        write_whole(folder / name, text)
