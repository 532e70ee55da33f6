"""Guesses about the instance of a kernel's template that a launch asks for."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_launches import HostLaunch
from tuner.csource.host_program import HostProgram
from tuner.csource.host_types import resolved_type
from tuner.csource.kernels import KernelSource
from tuner.drafts.symbols import quoted

_HALF = re.compile(r"\b(?:__half|half|Half|BFloat16|DISPATCH_\w*FLOATING\w*|nv_bfloat16)\b")
_TYPES = ("typename", "class")


class TemplateGuesses:
    """The arguments of the template.

    Attributes:
        types: each type parameter's argument as written; of one that the application leaves open,
            and of the host's name for it, the dtype to tune for.
        symbols: the dtype to tune for, of each type parameter that the application leaves open.
        constants: the values of the other parameters that have one.
    """

    def __init__(self, kernel: KernelSource, site: HostLaunch, program: HostProgram) -> None:
        self._kernel, self._site, self._program = kernel, site, program
        self.types: dict[str, str] = {}
        self.symbols: dict[str, str] = {}
        self.constants: dict[str, Polynomial] = {}
        pairs = zip_longest(kernel.signature.template, site.template)
        given = [(*pair, text or "") for pair, text in pairs if pair]
        types = {name: self._type(name, text) for name, kind, text in given if kind in _TYPES}
        self._arguments = [
            types[name] if name in types else self._value(name, kind, text)
            for name, kind, text in given
        ]

    @property
    def entry(self) -> str:
        """The kernel's name as a spec writes it."""
        signature = self._kernel.signature
        name = f"{signature.namespace}{signature.name}"
        return f'"{name}<{", ".join(self._arguments)}>"' if signature.template else quoted(name)

    def _type(self, name: str, text: str) -> str:
        dtype, _ = resolved_type(self._program, text, {}) if text else (None, 1)
        if dtype is None:
            half = any(_HALF.search(code) for code in self._program.code.values())
            dtype = self.symbols[name] = "float16" if half else "float32"
            self.types |= {name: dtype, text: dtype}
            return f"{{{name}}}"
        self.types[name] = text
        return text

    def _value(self, name: str, kind: str, text: str) -> str:
        number = replace(self._site.scope, types=self.types).number(text) if text else None
        if kind == "bool":
            number = int(text == "true" or bool(number))
            self.constants[name] = Polynomial.number(number)
            return "true" if number else "false"
        if number is not None and "::" not in text:
            self.constants[name] = Polynomial.number(number)
            return str(number)
        return self._instance(text) if text else "1"

    def _instance(self, text: str) -> str:
        """An argument with type symbols in place, and names as seen from outside."""
        hosts = self._host_names()
        text = re.sub(
            r"\w+", lambda word: f"{{{hosts[word[0]]}}}" if word[0] in hosts else word[0], text
        )
        space, first = self._kernel.signature.namespace, re.match(r"[A-Za-z_]\w*", text)
        if not space or not first or first[0] == space.split("::")[0]:
            return text
        declared = re.compile(rf"\b(?:enum(?:\s+class)?|struct|class|using)\s+{first[0]}\b")
        inside = any(function.name == first[0] for function in self._program.functions)
        inside = inside or any(map(declared.search, self._program.code.values()))
        return f"{space}{text}" if inside else text

    def _host_names(self) -> Mapping[str, str]:
        """The symbol of each type that the host names."""
        pairs = zip(self._kernel.signature.template, self._site.template, strict=False)
        return {text: name for (name, _), text in pairs if name in self.symbols}
