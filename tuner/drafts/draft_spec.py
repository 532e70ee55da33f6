"""A first spec for a kernel, with every guess marked as one.

Owns which files are read for it, and how guesses are written down.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tuner.backends.registry import backends
from tuner.csource.host_launches import host_launches
from tuner.csource.host_program import HostProgram
from tuner.csource.indices import Indices
from tuner.csource.kernels import KernelSource, kernels, unsupported_parameters
from tuner.drafts.guesses import ArgumentGuess, SpecGuesses
from tuner.drafts.launch_guesses import LaunchGuesses
from tuner.drafts.signature_guesses import SignatureGuesses
from tuner.drafts.symbols import comment_text, quoted
from tuner.errors import SpecError
from tuner.experiment.fields import read_text
from tuner.experiment.headers import find_headers, folders_for
from tuner.expressions import nearest
from tuner.files import plain_name

_GUESS = re.compile(r"#\s*guess\b")
_HOST_SUFFIXES = frozenset({".cu", ".cuh", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp"})
_MAX_HOST_FILES = 40
_MAX_BYTES_BESIDE = 64 << 20
"""Read of all files beside the kernel's, to find those that may launch it."""


def draft_spec(kernel: Path, entry: str | None = None) -> str:
    """The text of a commented spec for the kernel in the file ``kernel``.

    It is meant to lie beside that file, and validates unless the signature holds what no spec can
    express, which a comment then says.

    Args:
        kernel: A ``.cl``, ``.cu`` or ``.cuh`` file.
        entry: Which of its kernels; needed only where there are several.

    Raises:
        SpecError: The file cannot be read, or it is unclear which kernel is meant.
    """
    traits = next((one for one in backends() if kernel.suffix in one.suffixes), None)
    if traits is None:
        suffixes = ", ".join(sorted(suffix for one in backends() for suffix in one.suffixes))
        raise SpecError(
            f"{kernel}: a kernel file ends in {suffixes}; put a kernel that lies in host code into "
            "a file of its own"
        )
    try:
        source = read_text(kernel)
    except ValueError as error:
        raise SpecError(str(error)) from None
    folders = folders_for(kernel, source)
    headers = _headers(kernel, source, folders)
    found = _kernels((source,), traits.name)
    if not found or (entry is not None and entry not in found):
        found = {**_kernels(headers.values(), traits.name), **found}
    if not found:
        mark = traits.kernel_qualifiers[0]
        raise SpecError(f"{kernel}: no kernel found; one begins with {mark}")
    if entry is None and len(found) > 1:
        raise SpecError(
            f"{kernel} holds several kernels; choose one with --entry: {', '.join(found)}; if they "
            "run one after another, add the others to its spec under `kernel.launches`"
        )
    name = entry or next(iter(found))
    if name not in found:
        hint = nearest(name, found) or f"; there are: {', '.join(found)}"
        raise SpecError(f"{kernel}: no kernel '{name}'{hint}")
    for of, parameter, what in unsupported_parameters(source, traits.name):
        if of == name:
            raise SpecError(
                f"{kernel}: parameter '{parameter}' of {name} is {what}, which is not supported"
            )
    guesses = _guesses(found[name], kernel, {kernel.name: source, **headers})
    return "\n".join(_lines(found[name], guesses, kernel.name, folders)) + "\n"


def unread_guesses(text: str) -> tuple[int, ...]:
    """The lines of a spec, from 1, on which a guess is still marked as one."""
    return tuple(at for at, line in enumerate(text.splitlines(), 1) if _GUESS.search(line))


def guesses_left(lines: tuple[int, ...]) -> str:
    """The guesses of ``init`` that are still marked, by line."""
    need = "1 guess needs" if len(lines) == 1 else f"{len(lines)} guesses need"
    where = "line" if len(lines) == 1 else "lines"
    return f"{need} review: {where} {', '.join(map(str, lines))}"


def _kernels(texts: Iterable[str], language: str) -> dict[str, KernelSource]:
    """The kernels of some files by name; a definition before a declaration."""
    found: dict[str, KernelSource] = {}
    for text in texts:
        for each in kernels(text, language):
            if each.block or each.name not in found:
                found[each.name] = each
    return found


def _guesses(kernel: KernelSource, path: Path, files: Mapping[str, str]) -> SpecGuesses:
    if kernel.language == "cuda":
        count = len(kernel.signature.parameters)
        known = {**files, **_beside((kernel.name,), path, files)}
        wrappers = {
            site.function.name
            for site in host_launches(kernel.name, HostProgram(known))
            if site.function
        }
        program = HostProgram({**known, **_beside(wrappers - {"main"}, path, known)})
        sites = sorted(
            host_launches(kernel.name, program), key=lambda site: len(site.arguments) != count
        )
        for site in sites:
            read = LaunchGuesses(kernel, site, program)
            if read.understood:
                return read.guesses()
    return SignatureGuesses(kernel, Indices(kernel)).guesses()


def _headers(path: Path, source: str, folders: tuple[str, ...]) -> dict[str, str]:
    try:
        return find_headers(path, source, [path.parent / folder for folder in folders])
    except (ValueError, OSError):
        return {}  # validate tells what is wrong with them


def _beside(names: Collection[str], path: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Files beside the kernel's that name one of these functions, and may call it."""
    found: dict[str, str] = {}
    if not names:
        return found
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    left = _MAX_BYTES_BESIDE
    for each in sorted(path.parent.iterdir()):
        if each.suffix not in _HOST_SUFFIXES or each.name in files:
            continue
        try:
            text = read_text(each)
        except ValueError:
            continue
        left -= len(text)
        if left < 0 or len(found) >= _MAX_HOST_FILES:
            break
        if words.search(text):
            found[each.name] = text
    return found


def _lines(
    kernel: KernelSource, guesses: SpecGuesses, file: str, folders: tuple[str, ...]
) -> Iterator[str]:
    name = kernel.name
    written = f"Written from {name} in {file}"
    yield f"# {comment_text(written)}. Every guess needs review: correct it, and delete its"
    yield "# mark. 'kernelwright validate' on this file says what is wrong or missing, and which"
    yield "# guesses are left."
    yield "version: 1"
    yield f"name: {quoted(plain_name(name))}"
    yield ""
    yield "kernel:"
    yield f"  language: {kernel.language}"
    yield f"  source: {quoted(file)}    # relative to this file"
    mark = f"    {guesses.entry.comment}" if kernel.signature.template else ""
    yield f"  entry: {guesses.entry.text}{mark}"
    yield "  # options: []         # what the application compiles it with"
    if folders:
        yield f"  include_dirs: [{', '.join(map(quoted, folders))}]"
    else:
        yield "  # include_dirs: []    # folders of the headers that it includes"
    yield "  launch:"
    yield f"    grid: {guesses.grid.text}    {guesses.grid.comment}"
    yield f"    block: {guesses.block.text}    {guesses.block.comment}"
    if guesses.shared:
        yield f"    shared_bytes: {guesses.shared.text}    {guesses.shared.comment}"
    yield ""
    yield "arguments:              # in the kernel's order"
    local = {parameter.name for parameter in kernel.signature.parameters if parameter.local}
    for argument in guesses.arguments:
        yield _argument(argument, local=argument.name in local)
    yield ""
    yield "shapes:"
    yield f"  domain: {guesses.domain.text}    {guesses.domain.comment}"
    said = f"# guess: {comment_text(guesses.sizes_why)} ({guesses.sizes_confidence})"
    yield f"  tune:                 {said}"
    yield f"    - {_bound(guesses.tune)}"
    if guesses.held_out:
        yield "  held_out:             # guess: sizes that are confirmed, never searched (low)"
        yield f"    - {_bound(guesses.held_out)}"
    yield ""
    yield f"# reference: reference.py:{name}    # a NumPy function: takes inputs, inouts and"
    yield "                        # scalars by name, returns {name: array} of outs and inouts"
    yield "# cost: {bytes: 0, flops: 0}      # of one run: bytes moved, operations; expressions"
    yield "# template: template.yaml         # the parameterised kernel to search"
    yield ""
    yield "search: {trials: 100, seconds: 300}"


def _bound(shape: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{quoted(symbol)}: {value}' for symbol, value in shape.items())}}}"


def _argument(guess: ArgumentGuess, *, local: bool) -> str:
    if local:
        return f"  # {guess.name}: local memory cannot be passed; declare it inside the kernel"
    fields = ", ".join(f"{key}: {value}" for key, value in guess.fields.items())
    comment = f"# guess: {comment_text(guess.why)} ({guess.confidence})"
    return f"  - {{name: {quoted(guess.name)}, {fields}}}    {comment}"
