"""The kernel in an application's source, if it is still the one that a run measured.

Compared is the code of the kernel and of all that it reaches by name in the source and its headers
(functions, types, constants, macros), without comments and white space. No other change matters.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from tuner.csource.device_code import device_code
from tuner.csource.includes import reached
from tuner.csource.kernels import KernelSource, kernels
from tuner.csource.tree import MAX_CHARACTERS, parse, without_comments
from tuner.errors import SpecError
from tuner.experiment.model import Experiment

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:[^\n\\]|\\\n)*", re.MULTILINE)
_WORD = re.compile(r"\w+")
_HOST = "\nint kernelwright_host() { return 0; }\n"
"""With a host function, a source is always cut to what the kernel reaches."""


def measured_kernel(
    text: str,
    path: str,
    experiment: Experiment,
    entry: str,
    run: str,
    existing: Callable[[str], str | None],
) -> KernelSource:
    """The kernel that ``entry`` means, in a source that has no regions of it.

    Args:
        text: the source; lines may end in CRLF.
        path: its path in the application, for messages and for headers beside it.
        experiment: the experiment of the run.
        entry: the kernel's name, or its C++ name expression.
        run: the name of the run, for people.
        existing: the text of another file of the application, ``None`` if there is none.

    Raises:
        SpecError: there is no such kernel, there are several, or its code has changed.
    """
    spelled, language = entry.partition("<")[0].strip(), experiment.kernel.language
    namespace, _, name = spelled.removeprefix("::").rpartition("::")
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"{path} has more than {MAX_CHARACTERS} characters, too many to be read")
    code = _plain(text).replace("\r", " ")
    named = [one for one in kernels(code, language) if one.name == name and one.block]
    found = [one for one in named if one.signature.namespace.endswith(namespace + "::")] or named
    if not found:
        raise SpecError(f"{path} defines no kernel '{name}': name the file that does")
    place = f"{path}:{code.count(chr(10), 0, found[0].head[0]) + 1}"
    if len(found) > 1:
        raise SpecError(f"{place}: the kernel '{name}' is defined {len(found)} times: leave one")
    if not found[0].signature.certain:
        raise SpecError(f"{place}: the parameters of '{name}' cannot be read for certain")
    headers = dict(experiment.kernel.headers)
    beside = {file: _plain(existing(_beside(path, file)) or headers[file]) for file in headers}
    before = _reached(experiment.kernel.source.text, headers, entry, language)
    now = _reached(code, beside, entry, language)
    if changed := [
        file for file in now.keys() | before.keys() if now.get(file) != before.get(file)
    ]:
        where = place if "" in changed else _beside(path, min(changed))
        raise SpecError(
            f"{where}: the kernel '{name}', or what it uses there, is not what {run} measured: run "
            "again with the source as it is now, or restore the one in the run's "
            "spec.resolved.yaml"
        )
    return found[0]


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff")


def _beside(path: str, header: str) -> str:
    """Where a header lies that was recorded relative to the source's folder."""
    name = header.replace("__parent__", "..")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def _reached(
    source: str, headers: Mapping[str, str], entry: str, language: str
) -> Mapping[str, list[str]]:
    """What a kernel reaches, by header and, for the source itself, by an empty name."""
    given = tuple((name, text.replace("\r", " ")) for name, text in headers.items())
    if language != "cuda":
        used = reached("", source, dict(given))
        files = {"": source, **{name: text for name, text in given if name in used}}
    else:
        cut = device_code("", source + _HOST, given, (entry,))
        files = {"": cut.source, **dict(cut.headers)}
    found = {name: list(_declarations(text, language)) for name, text in files.items()}
    macros = {
        (name, match[1]): match[0]
        for name, text in files.items()
        for match in _DEFINE.finditer(without_comments(text))
    }
    words = {word for texts in found.values() for text in texts for word in _WORD.findall(text)}
    while expanded := [key for key in macros if key[1] in words]:
        for key in expanded:
            found[key[0]].append(macros.pop(key))
            words |= set(_WORD.findall(found[key[0]][-1]))
    plain = {name: ["".join(text.split()) for text in texts] for name, texts in found.items()}
    return {name: sorted(texts) for name, texts in plain.items() if texts}


def _declarations(text: str, language: str) -> Iterator[str]:
    """The code of each declaration at namespace scope, but for functions without a body."""
    tree = parse(text, language)
    if tree.root is None:
        yield tree.code
        return
    waiting = [tree.root]
    while waiting:
        for node in waiting.pop().named_children:
            inner = node.named_children[-1] if node.type == "template_declaration" else node
            body, declares = (inner.child_by_field_name(name) for name in ("body", "declarator"))
            function = declares is not None and declares.type == "function_declarator"
            if body and body.type == "declaration_list":
                waiting.append(body)
            elif not (function and inner.type == "declaration"):
                yield tree.code[tree.begin(node.start_byte) : node.end_byte]
