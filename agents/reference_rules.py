"""What a reference function that a model wrote may contain, checked before it is run.

Only NumPy and the standard library's ``math``, and nothing that reaches files, processes or the
interpreter. NumPy's names are looked up: functions, types and constants of the package and of a few
subpackages are allowed, other modules and functions that read or write files are not.
"""

import ast
from collections.abc import Iterator
from types import ModuleType

import numpy as np

MAX_CHARACTERS = 50_000

_MODULES = frozenset({"numpy", "math"})
_SUBPACKAGES = frozenset({"linalg", "fft"})
_BUILTINS = frozenset(
    """abs all any bool dict divmod enumerate filter float frozenset int len list map max min pow
    range reversed round set slice sorted sum tuple zip complex isinstance
    ValueError TypeError IndexError""".split()
)
_FILES = frozenset(
    """load loads loadtxt save savez savez_compressed savetxt fromfile tofile fromregex genfromtxt
    memmap DataSource dump dumps ctypes ctypeslib getbuffer open_memmap info lookfor source who
    setflags base data""".split()
)
"""Attributes that reach files or memory."""

_STATEMENTS = (
    ast.Global, ast.Nonlocal, ast.ClassDef, ast.AsyncFunctionDef, ast.Await, ast.Yield,
    ast.YieldFrom, ast.With, ast.AsyncWith, ast.AsyncFor, ast.Try, ast.TryStar, ast.Delete,
)  # fmt: skip


def reference_violation(text: str) -> str | None:
    """Why a file with a reference function may not be run; ``None`` if it may."""
    if len(text) > MAX_CHARACTERS:
        return f"the file has more than {MAX_CHARACTERS} characters"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
        said = error.msg if isinstance(error, SyntaxError) else "it cannot be read"
        return f"{line}{said}"
    packages = dict(_imported(tree))
    if why := _passed_on(tree, packages):
        return why
    for node in ast.walk(tree):
        if why := _problem(node, packages):
            return f"line {getattr(node, 'lineno', 1)}: {why}"
    unknown = _unknown_names(tree, packages)
    return f"the name {unknown} is not defined, or may not be used" if unknown else None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of imported modules in the file, and the modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)


def _passed_on(tree: ast.Module, packages: dict[str, str]) -> str | None:
    """A module that is used otherwise than by its attributes, which could not be checked then."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)]
    bases = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        whole = isinstance(node, ast.Name) and node.id in packages
        part = isinstance(node, ast.Attribute) and _subpackage(node, packages)
        if (whole or part) and id(node) not in bases:
            return f"line {node.lineno}: a module may be used as MODULE.NAME only"
    return None


def _subpackage(node: ast.Attribute, packages: dict[str, str]) -> bool:
    value = node.value
    numpy = isinstance(value, ast.Name) and packages.get(value.id) == "numpy"
    return numpy and node.attr in _SUBPACKAGES


def _problem(node: ast.AST, packages: dict[str, str]) -> str | None:
    match node:
        case ast.Import(names=names):
            for alias in names:
                if alias.name not in _MODULES:
                    return f"import {alias.name} is not allowed: only numpy and math"
        case ast.ImportFrom():
            return "write 'import numpy as np' or 'import math'; nothing else may be imported"
        case ast.Attribute(value=value, attr=name):
            if name.startswith("_") or name in _FILES:
                return f".{name} is not allowed"
            return _of_package(value, name, packages)
        case _ if isinstance(node, _STATEMENTS):
            return f"{type(node).__name__} is not allowed"
    return None


def _of_package(value: ast.expr, name: str, packages: dict[str, str]) -> str | None:
    """Whether an attribute of NumPy, or of a subpackage, is one that may be used."""
    owner: object = None
    match value:
        case ast.Name(id=package) if packages.get(package) == "numpy":
            owner = np
        case ast.Attribute() if _subpackage(value, packages):
            owner = getattr(np, value.attr)
    if owner is None:
        return None
    found = getattr(owner, name, None)
    if found is None:
        return f"numpy has no {name}"
    if isinstance(found, ModuleType) and not (owner is np and name in _SUBPACKAGES):
        return f"numpy.{name} is not allowed"
    return None


def _unknown_names(tree: ast.Module, packages: dict[str, str]) -> str | None:
    """The first name that is read and neither defined in the file nor a harmless built-in."""
    known = {*packages, *_BUILTINS}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name):
                known.add(name)
            case ast.arg(arg=name):
                known.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                known.add(name)
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return next((node.id for node in names if node.id not in known), None)
