"""Source rules: what no candidate's source may contain, checked before it is compiled.

A filter that saves compiles and names reasons; the bench decides what is correct and fast. What
the baseline does, a candidate may do too. Rules read the text and what its macros expand to, with
regular expressions rather than the parser: a parser may misread hostile text that compiles. What a
rule does not understand passes.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from tuner.backends.registry import traits_of
from tuner.backends.traits import COMPILED_ELSEWHERE, BackendTraits
from tuner.csource.device_code import device_code
from tuner.csource.expansion import Line, expanded, spliced
from tuner.csource.kernels import Parameter, Signature, signatures
from tuner.csource.tree import without_comments, without_directives
from tuner.errors import SpecError
from tuner.experiment.arguments import item_bytes, kernel_arguments
from tuner.experiment.model import DTYPES, Argument, Experiment, Launch, Template

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"[ \t]*#[ \t]*(define|undef)[ \t]+([A-Za-z_]\w*)")
_GUARD = re.compile(r"[ \t]*#[ \t]*ifndef[ \t]+([A-Za-z_]\w*)")
_DECLARED = re.compile(
    r"(\(\s*)?\b([A-Za-z_]\w*)\s*(?(1)\)\s*)\([^(){};]*\)\s*(?=[;,]|__attribute__)"
)
_DEFINED = re.compile(r"\b([A-Za-z_]\w*)\s*\([^(){};]*\)\s*\{")
_ENDS = re.compile(r"[;{}]")
_DECLARES = re.compile(r"\s*(?:[A-Za-z_]\w*[\s*]+)+")
_NO_TYPES = frozenset({"return", "else", "do", "case", "goto"})
_PRAGMA_NAMES = (
    "redefine_extname weak push_macro pop_macro attribute alias section dependency".split()
)
_PRAGMA = re.compile(rf"\b(?:{'|'.join(_PRAGMA_NAMES)})\b")
_PRAGMA_WORDS = 16
"""Words behind the operator, up to the parenthesis, that are looked at."""

_ATTRIBUTES = frozenset(
    "address_space constructor destructor alias ifunc section weak weakref naked".split()
)
_ATTRIBUTE = ("__attribute__", "__attribute")
_PRAGMA_OPERATORS = ("_Pragma", "__pragma")
_OUTSIDE = "it reaches code outside the kernel"

_BUILTIN = re.compile(
    r"""__builtin_(?:expect\w*|assume\w*|unreachable|constant_p|choose_expr|offsetof|shufflevector
    |convertvector|bit_cast|nontemporal_(?:load|store)|prefetch|popcount\w*|clz\w*|ctz\w*|ffs\w*
    |parity\w*|bswap\w*|bitreverse\w*|rotate\w*|nans?f?|inff?|huge_val\w*|is\w+|signbit\w*|fabs\w*
    |floor\w*|fma\w*|fmin\w*|fmod\w*|a?(?:sin|cos|tan)h?f?|atan2f?|sqrt\w*|exp\w*|log\w*|pow\w*
    |l?l?r(?:ound|int)\w*|trunc\w*|ceil\w*|copysign\w*|m(?:ax|in)\w*|mem(?:cpy|set|move)\w*
    |elementwise_\w+|reduce_\w+)""",
    re.X,
)

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]+)|u([0-9A-Fa-f]{4})|([0-7]{1,3})|(.))", re.S)
_LETTERS = {"n": "\n", "t": "\t", "r": "\n", "v": " ", "f": " "}

_RESERVED = frozenset(
    """auto bool break case char class const constexpr continue default do double else enum float
    for goto half if inline int long register restrict return short signed sizeof static struct
    switch template typedef typename union unsigned using void volatile while
    __half __half2 __nv_bfloat16 __nv_bfloat162 __global__ __device__ __shared__ __constant__
    __launch_bounds__ __restrict__ __kernel kernel __global global __local local __constant constant
    threadIdx blockIdx blockDim gridDim get_global_id get_local_id get_group_id get_global_size
    get_local_size get_num_groups barrier __syncthreads""".split()
)


def source_violations(experiment: Experiment, template: Template) -> tuple[str, ...]:
    """The rules that a template's source breaks, one message each; empty if it breaks none.

    Checks names that reach outside the kernel, macros that change the meaning of a parameter, a
    type or a keyword, and the entry's parameters against the experiment's arguments. Includes are
    checked with each compile (:mod:`tuner.integrity.include_rules`), and what inline assembly does
    in what the compiler made of it (:mod:`tuner.integrity.binary_rules`).
    """
    kernel, file = experiment.kernel, template.source.name
    traits = traits_of(kernel.language)
    source = spliced(template.source.text)
    code = without_comments(source)
    compiled = spliced(_compiled_text(experiment, template))
    try:
        readings = expanded(compiled)
    except SpecError as problem:
        return (f"{file}: {problem}",)
    text = "\n".join((without_comments(compiled), *map(_without_literals, readings)))
    before = set(_WORD.findall(without_comments(spliced(kernel.source.text))))
    if template.dependent:
        before |= traits.dependence_names
    reasons = (
        *_hidden(source, code),
        *_pragmas(readings),
        *_foreign_names(text, traits, before),
        *_launches(without_directives(compiled), readings),
        *(
            reason
            for reading in readings
            if traits.refuses_undefined_calls
            for reason in _undefined_functions(_without_literals(reading), before)
        ),
        *_macros(code, template, experiment),
        *_signatures(experiment, template),
    )
    return tuple(dict.fromkeys(f"{file}: {reason}" for reason in reasons))


def unseen_names(texts: Iterable[str], traits: BackendTraits) -> tuple[str, ...]:
    """Names that rules here look for, less those in the code of ``texts``: only macros make them.

    No reading of macros foresees all that a compiler makes of them: it defines some itself, and
    decides conditions. So the compiler is to refuse these names.
    """
    seen = {word for text in texts for word in _WORD.findall(without_comments(spliced(text)))}
    attributes = [form.format(name) for name in _ATTRIBUTES for form in ("{}", "__{}__")]
    sought = {*traits.forbidden_names, *_ATTRIBUTE, *_PRAGMA_OPERATORS, *_PRAGMA_NAMES, *attributes}
    return tuple(sorted(sought - seen - COMPILED_ELSEWHERE.keys()))


def _compiled_text(experiment: Experiment, template: Template) -> str:
    """The template's source, less the host code that no compiler is given."""
    kernel, source = experiment.kernel, template.source
    if traits_of(kernel.language).grammar != "cuda":
        return source.text
    launched = (step.entry for step in template.steps if isinstance(step, Launch))
    entries = tuple(entry or template.entry for entry in launched)
    return device_code(source.name, source.text, kernel.headers, entries).source


def _without_literals(reading: Line) -> str:
    return " ".join('""' if word[-1:] == '"' else word for word in reading if word[-1:] != "'")


def _hidden(source: str, code: str) -> Iterator[str]:
    """Spellings that compilers and these rules read differently."""
    if re.search(r'\b(?:u8|[uUL])?R"', code):
        yield "raw string literals are not allowed"
    if re.search(r"\\[uU][0-9A-Fa-f]{4}", code):
        yield "universal character names are not allowed"
    for line in source.split("\n"):
        if re.search(r"^\s*#\s*pragma\b", line) and (found := _PRAGMA.search(line)):
            yield f"#pragma {found[0]} is not allowed: {_OUTSIDE}"


def _pragmas(readings: Sequence[Line]) -> Iterator[str]:
    """Pragmas that operators give, whatever macros make of their text."""
    for reading in readings:
        for place, word in enumerate(reading):
            if word in _PRAGMA_OPERATORS:
                following = reading[place + 1 : place + 1 + _PRAGMA_WORDS]
                text = " ".join(takewhile(lambda word: word != ")", following))
                if found := _PRAGMA.search(_ESCAPE.sub(_character, text)):
                    yield f"#pragma {found[0]} is not allowed: {_OUTSIDE}"


def _foreign_names(code: str, traits: BackendTraits, baseline: set[str]) -> Iterator[str]:
    found = set(_WORD.findall(code))
    new = sorted(found - baseline)
    patterns = traits.forbidden_patterns.items()
    for word in new:
        why = traits.forbidden_names.get(word) or next(
            (why for pattern, why in patterns if re.fullmatch(pattern, word)), None
        )
        if why:
            yield f"{word} is not allowed: {why}"
        if word.startswith("__builtin_") and not _BUILTIN.fullmatch(word):
            yield f"{word} is not allowed: {_OUTSIDE}"
    if not found.isdisjoint(_ATTRIBUTE):
        for word in new:
            if word.strip("_") in _ATTRIBUTES:
                yield f"attribute {word} is not allowed: it reaches outside the kernel"


def _launches(code: str, readings: Sequence[Line]) -> Iterator[str]:
    """Launches of kernels, also by macros that are used; those of an application are not."""
    if any("<<<" in text for text in (code, *map("".join, readings))):
        yield "<<<…>>> is not allowed: a kernel may not launch another"


def _undefined_functions(code: str, baseline: set[str]) -> Iterator[str]:
    """Functions declared but not defined: on a CPU they would be looked up in the process."""
    defined = set(_DEFINED.findall(code))
    ends = [match.end() for match in _ENDS.finditer(code)]
    for match in _DECLARED.finditer(code):
        name, end = match[2], match.start()
        if name in defined or name in baseline:
            continue
        place = bisect_right(ends, end)
        begin = ends[place - 1] if place else 0
        if _DECLARES.fullmatch(code, begin, end) and not _NO_TYPES & set(code[begin:end].split()):
            yield f"{name} is declared but not defined: a kernel may not call into the process"


def _character(escape: re.Match[str]) -> str:
    for digits, base in ((escape[1], 16), (escape[2], 16), (escape[3], 8)):
        if digits:
            return chr(int(digits, base) & 0xFFFF)
    return _LETTERS.get(escape[4], escape[4])


def _macros(code: str, template: Template, experiment: Experiment) -> Iterator[str]:
    members = (f"{n}_{v}" for n, vs in template.parameters.items() for v in vs if type(v) is str)
    parameters = {*template.parameters, *template.defines, *members}
    arguments = {argument.name for argument in experiment.arguments}
    guarded: str | None = None
    for line in code.split("\n"):
        match = _DEFINE.match(line)
        if match:
            directive, name = match[1], match[2]
            if name in parameters and not (directive == "define" and guarded == name):
                yield (
                    f"#{directive} {name} overrides a parameter; "
                    f"a default belongs between #ifndef {name} and #endif"
                )
            elif name in _RESERVED or name == template.entry:
                yield f"#{directive} {name} changes the meaning of the language"
            elif name in arguments:
                yield f"#{directive} {name} hides an argument"
        if line.strip():
            guard = _GUARD.match(line)
            guarded = guard[1] if guard else None


def _signatures(experiment: Experiment, template: Template) -> Iterator[str]:
    defined = signatures(template.source.text, experiment.kernel.language)
    often = Counter(signature.name for signature in defined)
    found = {s.name: s for s in defined if s.certain and often[s.name] == 1}
    arguments = {argument.name: argument for argument in experiment.arguments}
    scratch = {argument.name: argument.dtype for argument in template.scratch}
    scratch_align = {argument.name: argument.align for argument in template.scratch}
    default = kernel_arguments(experiment, template)
    for launch in template.steps:
        if not isinstance(launch, Launch):
            continue
        entry = launch.entry or template.entry
        signature = found.get(re.split(r"[<(]", entry)[0].rpartition("::")[2].strip())
        if signature is None:
            continue
        names = launch.arguments or default
        if len(signature.parameters) != len(names):
            yield (
                f"{signature.name} takes {len(signature.parameters)} parameters, but is called "
                f"with {len(names)}: {', '.join(names)}"
            )
            continue
        for name, parameter in zip(names, signature.parameters, strict=True):
            argument = arguments.get(name)
            dtype = argument.dtype if argument else scratch.get(name, "")
            align = argument.align if argument else scratch_align.get(name)
            problem = _mismatch(name, argument, dtype, parameter, signature)
            problem = problem or _misaligned(name, align, parameter, signature, experiment)
            if problem:
                yield problem


def _mismatch(
    name: str, argument: Argument | None, dtype: str, parameter: Parameter, signature: Signature
) -> str | None:
    by_value = argument is not None and not argument.is_pointer
    if parameter.local:
        return f"{signature.name}: {name} must not be local memory"
    if parameter.pointer == by_value:
        wanted = "a value" if by_value else "a pointer"
        return f"{signature.name}: {name} must be {wanted}, not {parameter.type}"
    known = parameter.dtype if parameter.type not in dict(signature.template) else None
    untyped = argument is not None and argument.kind in ("null", "struct")
    symbolic = dtype not in DTYPES
    byte = dtype == "bool" and known == "uint8"  # OpenCL knows no pointers to bool
    if known is None or untyped or symbolic or known == dtype or byte:
        return None
    alike = [(item_bytes(name), name.startswith(("float", "bfloat"))) for name in (known, dtype)]
    if by_value and alike[0] == alike[1]:
        return None
    return f"{signature.name}: {name} must have elements of {dtype}, not {parameter.type}"


def _misaligned(
    name: str, align: int | None, parameter: Parameter, signature: Signature, experiment: Experiment
) -> str | None:
    """A pointer to vectors, though the argument's alignment allows none."""
    if not parameter.pointer or parameter.lanes == 1 or parameter.dtype is None:
        return None
    item = item_bytes(parameter.dtype)
    needed = traits_of(experiment.kernel.language).vector_align(item, parameter.lanes)
    if (align or item) >= needed:
        return None
    return (
        f"{signature.name}: {name} must not be {parameter.type}*: that needs pointers aligned to "
        f"{needed} bytes, and {align or item} are promised"
    )
