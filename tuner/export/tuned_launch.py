"""The C++ function that launches a tuned kernel in place of the original, and its helpers.

``launch`` takes what the original launch takes and says whether it launched a tuned kernel. It does
so only for the launch that was measured: the same scalars, grid and block for a shape in the
domain, on the architecture of the run, on aligned buffers of which none overlaps an output.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.experiment.arguments import item_bytes, kernel_arguments, type_name
from tuner.experiment.model import Argument, Experiment, Launch, Memset
from tuner.export.launch_code import LaunchCode
from tuner.export.original import BLOCK, CONFIGURATION, GRID, STREAM, OriginalLaunch, c_name
from tuner.export.variant import ExportVariant
from tuner.expressions.real import RealExpression
from tuner.plan import Shape

_HELPERS = """\
static inline bool on_measured_device()
{
    int device, major, minor;
    return cudaGetDevice(&device) == cudaSuccess
        && cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess
        && cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess
        && major * 10 + minor == @CAPABILITY@;
}

static inline bool apart(const void *a, long long a_bytes, const void *b, long long b_bytes)
{
    return (uintptr_t)a + a_bytes <= (uintptr_t)b || (uintptr_t)b + b_bytes <= (uintptr_t)a;
}

template <typename T>
static inline T number_at(const void *structure, size_t offset)
{
    T value;
    memcpy(&value, (const char *)structure + offset, sizeof value);
    return value;
}

static inline bool run(const void *kernel, const @P@_step *t, void **arguments, cudaStream_t stream)
{
    const dim3 grid((unsigned)t->grid[0], (unsigned)t->grid[1], (unsigned)t->grid[2]);
    const dim3 block((unsigned)t->block[0], (unsigned)t->block[1], (unsigned)t->block[2]);
    if (t->shared_bytes > 48 * 1024
        && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)t->shared_bytes) != cudaSuccess)
        return false;
    cudaLaunchAttribute attributes[3] = {};
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = t->cooperative;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = t->dependent;
    attributes[2].id = cudaLaunchAttributeClusterDimension;
    attributes[2].val.clusterDim.x = (unsigned)t->cluster[0];
    attributes[2].val.clusterDim.y = (unsigned)t->cluster[1];
    attributes[2].val.clusterDim.z = (unsigned)t->cluster[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = (size_t)t->shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = t->cluster[0] * t->cluster[1] * t->cluster[2] > 1 ? 3 : 2;
    return cudaLaunchKernelExC(&config, kernel, arguments) == cudaSuccess;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One build of a variant.

    ``when`` are the C conditions under which it serves, ``defines`` its macros, ``entries`` the
    kernel of each step (empty for a memset), within ``namespace``.
    """

    namespace: str
    when: tuple[str, ...]
    defines: Mapping[str, int]
    entries: tuple[str, ...]


class TunedLaunch:
    """Writes the functions for ``variants`` and ``instances`` by trial."""

    def __init__(
        self,
        experiment: Experiment,
        device: Device,
        original: OriginalLaunch,
        code: LaunchCode,
        variants: Mapping[int, ExportVariant],
        instances: Mapping[int, Sequence[Instance]],
    ) -> None:
        self.experiment, self.device = experiment, device
        self.original, self.code = original, code
        self.variants, self.instances = variants, instances
        self.prefix = code.prefix

    def lines(self) -> Iterator[str]:
        """The functions, ``launch`` last."""
        helpers = _HELPERS.replace("@P@", self.prefix)
        yield from helpers.replace("@CAPABILITY@", str(self.device.compute_capability)).split("\n")
        for argument in self.original.arguments:
            if argument.is_buffer:
                yield from self._size(argument)
        for trial, variant in self.variants.items():
            if trial != BASELINE:
                yield from self._run(variant, self.instances[trial])
        yield from self._launch()

    def _parameters(self) -> str:
        """The parameters of the original kernel, as C++."""
        return ", ".join(f"{_type(one)}{c_name(one.name)}" for one in self.original.arguments)

    def _size(self, argument: Argument) -> Iterator[str]:
        """A function of a buffer's size in bytes."""
        yield f"static inline long long bytes_of_{argument.name}(const {self.prefix}_shape *s)"
        yield "{"
        yield "    (void)s;"
        for types in self.code.types:
            item = item_bytes(str(types.get(argument.dtype, argument.dtype)))
            if conditions := self.code.typed(types):
                yield f"    if ({' && '.join(conditions)})"
            yield f"    return {item}LL * {self._elements(argument, types)};"
        if self.code.types[0]:
            yield "    return 0;"
        yield "}"
        yield ""

    def _elements(self, argument: Argument, types: Shape) -> str:
        extents = [self.code.c(extent, types) for extent in argument.shape]
        if not argument.strides:
            return " * ".join(extents) or "1LL"
        steps = [self.code.c(step, types) for step in argument.strides]
        reach = [f"({n} - 1) * {step}" for n, step in zip(extents, steps, strict=True)]
        return f"({' + '.join([*reach, '1LL'])})"

    def _run(self, variant: ExportVariant, instances: Sequence[Instance]) -> Iterator[str]:
        """A function that launches one variant; false if it changed nothing."""
        steps = variant.subject(self.experiment).steps
        scratch = [one.name for one in (variant.template.scratch if variant.template else ())]
        constant = self.code.constant(variant)
        listed = f"const {self.prefix}_shape *s, cudaStream_t {STREAM}, {self._parameters()}"
        yield f"static inline bool run_{variant.name}({listed})"
        yield "{"
        yield f"    const void *kernels[{len(steps)}] = {{}};"
        yield f"    {self.prefix}_step t;"
        yield "    bool launched = false;"
        for instance in instances:
            yield f"    if ({' && '.join(instance.when) or 'true'}) {{"
            for number, entry in enumerate(instance.entries):
                if entry:
                    function = f"{instance.namespace}::{entry.removeprefix('::')}"
                    yield f"        kernels[{number}] = (const void *){function};"
            yield "    }"
        first = next(n for n, step in enumerate(steps) if isinstance(step, Launch))
        yield f"    if (!kernels[{first}])"
        yield "        return false;"
        for number, name in enumerate(scratch):
            size = f"(size_t){self.prefix}_scratch_bytes({constant}, {number}, s)"
            yield f"    void *{c_name(name)} = nullptr;"
            yield f"    if (cudaMallocAsync(&{c_name(name)}, {size}, {STREAM}) != cudaSuccess) {{"
            yield from (f"        cudaFreeAsync({c_name(e)}, {STREAM});" for e in scratch[:number])
            yield "        cudaGetLastError();"
            yield "        return false;"
            yield "    }"
        yield "    do {"
        for number, step in enumerate(steps):
            yield f"        {self.prefix}_step_of({constant}, {number}, s, &t);"
            yield from self._step(number, step, variant, scratch)
            yield "            break;"
            yield "        launched = true;"
        yield "    } while (false);"
        yield from (f"    cudaFreeAsync({c_name(name)}, {STREAM});" for name in scratch)
        yield "    if (!launched)"
        yield "        cudaGetLastError();"
        yield "    return launched;"
        yield "}"
        yield ""

    def _step(
        self, number: int, step: Launch | Memset, variant: ExportVariant, scratch: Sequence[str]
    ) -> Iterator[str]:
        """One launch or fill, up to the condition that it failed."""
        if isinstance(step, Memset):
            size = f"bytes_of_{step.memset}(s)"
            if step.memset in scratch:
                place = f"{self.code.constant(variant)}, {scratch.index(step.memset)}"
                size = f"{self.prefix}_scratch_bytes({place}, s)"
            filled = f"(void *){c_name(step.memset)}, {step.byte}, (size_t){size}, {STREAM}"
            yield f"        if (cudaMemsetAsync({filled}) != cudaSuccess)"
        else:
            names = step.arguments or kernel_arguments(self.experiment, variant.template)
            passed = ", ".join(f"(void *){self._place(name)}" for name in names)
            yield f"        void *arguments{number}[] = {{{passed}}};"
            yield f"        if (!run(kernels[{number}], &t, arguments{number}, {STREAM}))"

    def _place(self, name: str) -> str:
        """C for the address of a kernel's parameter."""
        structs = [one.name for one in self.original.arguments if one.kind == "struct"]
        return c_name(name) if name in structs else f"&{c_name(name)}"

    def _launch(self) -> Iterator[str]:
        p, original = self.prefix, self.original
        given = (*original.entry_symbols, *original.missing)
        first = "".join(f"long long kw_{name}, " for name in given)
        names = ", ".join(c_name(argument.name) for argument in original.arguments)
        yield f"static inline bool launch({first}{CONFIGURATION}, {self._parameters()})"
        yield "{"
        yield f"    {p}_shape shape;"
        yield f"    {p}_shape *const s = &shape;"
        yield from (f"    s->{name} = kw_{name};" for name in given)
        yield from (f"    s->{name} = {value};" for name, value in original.values.items())
        conditions = [f"{p}_in_domain(s)", *self._as_measured(), "on_measured_device()"]
        listed = "\n          && ".join(conditions)
        yield from f"    if (!({listed}))".split("\n")
        yield "        return false;"
        yield f"    switch ({p}_select(s)) {{"
        for trial, variant in self.variants.items():
            if trial != BASELINE:
                yield f"    case {self.code.constant(variant)}:"
                yield f"        return run_{variant.name}(s, {STREAM}, {names});"
        yield "    }"
        yield "    return false;"
        yield "}"
        yield ""

    def _as_measured(self) -> Iterator[str]:
        """C conditions: the launch is one that the run measured the original with."""
        original = self.original
        for expression, value in original.equations():
            if original.values.get(expression.text) != value:
                yield self._equal(value, [self.code.c(expression, t) for t in self.code.types])
        for variable, extents in ((GRID, original.launch.grid), (BLOCK, original.launch.block)):
            yield from (f"{variable}.{axis} == 1" for axis in "xyz"[len(extents) :])
        for type_, number, given in original.numbers:
            if isinstance(number, float):
                yield f"{given} == ({type_}){number!r}"
            elif isinstance(number, RealExpression):
                # The application may have computed it in its own type and order.
                expected = number.to_c("s->{}".format)
                close = 1e-6 if type_ in ("float", "double") else 4e-3
                yield f"fabs((double)(float){given} - {expected}) <= {close} * fabs({expected})"
        for argument in original.arguments:
            if argument.kind == "null":
                yield f"{c_name(argument.name)} == nullptr"
            elif argument.bytes:
                contents = re.sub("(..)", r"\\x\1", argument.bytes)
                count = len(argument.bytes) // 2
                yield f'memcmp({c_name(argument.name)}, "{contents}", {count}) == 0'
        arguments = self.experiment.arguments
        if aligned := [c_name(one.name) for one in arguments if one.is_buffer and one.align]:
            yield f"{self.prefix}_aligned({', '.join(aligned)})"
        buffers = [argument for argument in original.arguments if argument.is_buffer]
        for one, other in combinations(buffers, 2):
            if one.kind != "in" or other.kind != "in":
                sizes = (f"{c_name(a.name)}, bytes_of_{a.name}(s)" for a in (one, other))
                yield f"apart({', '.join(sizes)})"

    def _equal(self, value: str, alternatives: Sequence[str]) -> str:
        if len(set(alternatives)) == 1:
            return f"{value} == {alternatives[0]}"
        cases = zip(self.code.types, alternatives, strict=True)
        listed = (" && ".join([*self.code.typed(t), f"{value} == {c}"]) for t, c in cases)
        return f"({' || '.join(listed)})"


def _type(argument: Argument) -> str:
    """The type of a parameter, up to its name."""
    if argument.is_pointer or argument.kind == "struct":
        return "const void *"
    return f"{type_name(argument.dtype, 'cuda')} "
