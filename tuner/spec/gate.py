"""The static gate: what no candidate's source may say, found before any compiler sees it.

A pre-filter with reasons, never the judge: the bench decides what is right and fast. What the
baseline itself does, a candidate may do too. Reads text only; where it does not understand, it lets
pass.
"""

import re
from collections import Counter
from collections.abc import Iterator

from tuner.device import Backend
from tuner.spec.experiment import DTYPES, Argument, Experiment, Launch, Template
from tuner.spec.resolve import kernel_arguments
from tuner.spec.signature import Parameter, Signature, signatures, without_comments

_WORD = re.compile(r"[A-Za-z_]\w*")
_LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
_COMMENT_OR_LITERAL = re.compile(r'(//[^\n]*|/\*.*?(?:\*/|\Z))|"(?:\\.|[^"\\\n])*"', re.S)
_DEFINE = re.compile(r"[ \t]*#[ \t]*(define|undef)[ \t]+([A-Za-z_]\w*)")
_GUARD = re.compile(r"[ \t]*#[ \t]*ifndef[ \t]+([A-Za-z_]\w*)")
_PROTOTYPE = re.compile(r"\b([A-Za-z_]\w*)\s*\([^(){};]*\)\s*;")
_DECLARES = re.compile(r"(?:^|[;{}])\s*(?:[A-Za-z_]\w*[\s*]+)+\Z")

_ATTRIBUTES = frozenset("constructor destructor alias ifunc section weak weakref naked".split())
_ASM = frozenset({"asm", "__asm", "__asm__"})

_FORBIDDEN: dict[Backend, dict[str, str]] = {
    "cuda": {
        "cudaGridDependencySynchronize": "it may finish after the timing ends",
        "cudaTriggerProgrammaticLaunchCompletion": "it may finish after the timing ends",
        "printf": "a kernel's text is never a result",
        "clock": "a kernel that reads a clock can tell when it is timed",
        "clock64": "a kernel that reads a clock can tell when it is timed",
        "globaltimer": "a kernel that reads a clock can tell when it is timed",
        "main": "only device code is compiled",
    },
    "opencl": {
        "enqueue_kernel": "it may finish after the timing ends",
        "printf": "a kernel's text is never a result",
        "extern": "it reaches code outside the kernel",
        "asm": "inline assembly is not allowed in OpenCL",
        "__asm": "inline assembly is not allowed in OpenCL",
        "__asm__": "inline assembly is not allowed in OpenCL",
    },
}
_HOST_CALLS = re.compile(r"cu(?:da)?(?:Launch|Graph|Stream|Event|Malloc|Free|Memcpy|Memset|Ctx)\w*")

_MNEMONICS = frozenset(
    """abs add addc and bar barrier bfe bfi bfind brev clz cnot copysign cos cp cvt cvta div dp2a
    dp4a elect ex2 fence fma fns isspacep ld ldmatrix ldu lg2 lop3 mad mad24 madc max mbarrier
    membar min mma mov movmatrix mul mul24 neg not or popc prefetch prefetchu prmt rcp red redux rem
    rsqrt sad selp set setp shf shfl shl shr sin slct sqrt st stmatrix sub subc szext tanh testp
    vote wgmma xor""".split()
)
_NO_MNEMONIC = re.compile(r"[=+]?&?[a-zA-Z]|memory|cc|[A-Za-z0-9_]+:")
_STATEMENT = re.compile(r"(?:^|[;{}]|\\n|\\t)[\s{]*(?:@!?%?\w+\s+)?([A-Za-z]\w*)")

_RESERVED = frozenset(
    """auto bool break case char class const constexpr continue default do double else enum float
    for goto half if inline int long register restrict return short signed sizeof static struct
    switch template typedef typename union unsigned using void volatile while
    __half __half2 __nv_bfloat16 __nv_bfloat162 __global__ __device__ __shared__ __constant__
    __launch_bounds__ __restrict__ __kernel kernel __global global __local local __constant constant
    threadIdx blockIdx blockDim gridDim get_global_id get_local_id get_group_id get_global_size
    get_local_size get_num_groups barrier __syncthreads""".split()
)


def gate(experiment: Experiment, template: Template) -> tuple[str, ...]:
    """Why this template's source is refused: one reason each, empty if it may go on.

    Checks names that reach outside the kernel, inline assembly, macros that change the meaning of
    a parameter, a type or a keyword, and the entry's parameters against the experiment's
    arguments. Includes are judged where the compiler is (``workers.compilers``).
    """
    language = experiment.kernel.language
    source = _spliced(template.source.text)
    baseline = set(_WORD.findall(without_comments(_spliced(experiment.kernel.source.text))))
    code = without_comments(source)
    return tuple(
        f"{template.source.name}: {reason}"
        for reason in (
            *_foreign_names(code, language, baseline),
            *(_assembly(source) if language == "cuda" else ()),
            *_macros(code, template, experiment),
            *_signatures(experiment, template),
        )
    )


def _spliced(text: str) -> str:
    """The text as the preprocessor joins it: trigraphs, digraphs and continued lines resolved."""
    text = text.replace("??/", "\\").replace("??=", "#").replace("%:", "#")
    return re.sub(r"\\[ \t]*\n", "", text)


def _foreign_names(code: str, language: Backend, baseline: set[str]) -> Iterator[str]:
    words = set(_WORD.findall(code))
    for word, why in _FORBIDDEN[language].items():
        if word in words - baseline:
            yield f"{word} is not allowed: {why}"
    for word in sorted(words - baseline):
        if _HOST_CALLS.fullmatch(word):
            yield f"{word} is not allowed: a kernel may not call the runtime"
    if "<<<" in code:
        yield "<<<…>>> is not allowed: a kernel may not launch another"
    if "__attribute__" in words:
        for word in sorted(words & _ATTRIBUTES - baseline):
            yield f"attribute {word} is not allowed: it reaches outside the kernel"
    if language == "opencl":
        yield from _undefined_functions(code, baseline)


def _undefined_functions(code: str, baseline: set[str]) -> Iterator[str]:
    """Functions declared but not defined: on a CPU they would be looked up in the process."""
    for match in _PROTOTYPE.finditer(code):
        name = match[1]
        before = code[: match.start()]
        statement = before[max((before.rfind(mark) for mark in ";{}\n"), default=0) + 1 :]
        declares = _DECLARES.search(f";{statement}") and "return" not in statement.split()
        defined = re.search(rf"\b{name}\s*\([^(){{}};]*\)\s*{{", code)
        if declares and not defined and name not in baseline:
            yield f"{name} is declared but not defined: a kernel may not call into the process"


def _assembly(source: str) -> Iterator[str]:
    """Instructions off the list, in any literal of a source that holds inline assembly."""
    visible = _COMMENT_OR_LITERAL.sub(lambda match: " " if match[1] else match[0], source)
    if not _ASM & set(_WORD.findall(_LITERAL.sub('""', visible))):
        return
    if re.search(r'\b(?:u8|u|U|L)?R"', visible):
        yield "raw string literals are not allowed beside inline assembly"
    refused = {
        word
        for literal in _LITERAL.findall(visible)
        if not _NO_MNEMONIC.fullmatch(literal)
        for word in _STATEMENT.findall(literal)
        if word not in _MNEMONICS
    }
    for word in sorted(refused):
        yield f"inline assembly may not use '{word}'"


def _macros(code: str, template: Template, experiment: Experiment) -> Iterator[str]:
    parameters = {*template.parameters, *template.defines}
    arguments = {argument.name for argument in experiment.arguments}
    guarded: str | None = None
    for line in code.splitlines():
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
            if problem := _mismatch(name, argument, dtype, parameter, signature):
                yield problem


def _mismatch(
    name: str, argument: Argument | None, dtype: str, parameter: Parameter, signature: Signature
) -> str | None:
    scalar = argument is not None and argument.kind == "scalar"
    if parameter.local:
        return f"{signature.name}: {name} must not be local memory"
    if parameter.pointer == scalar:
        wanted = "a value" if scalar else "a pointer"
        return f"{signature.name}: {name} must be {wanted}, not {parameter.type}"
    known = parameter.dtype if parameter.type not in dict(signature.template) else None
    is_null = argument is not None and argument.kind == "null"
    symbolic = dtype not in DTYPES
    if known is None or is_null or symbolic or known == dtype:
        return None
    return f"{signature.name}: {name} must have elements of {dtype}, not {parameter.type}"
