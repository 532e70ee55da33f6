"""``export.json``: all that is needed to choose, compile and launch an exported kernel.

Sources and headers are the files beside it. The loader (:mod:`workers.loader`) reads it, so it is
validated like any outside input.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.experiment.check import check
from tuner.experiment.fields import Source
from tuner.experiment.model import Argument, Experiment, Kernel, ShapeBinding, Shapes, Template
from tuner.export.variant import ExportVariant
from tuner.expressions import Expression
from tuner.files import first_problem
from tuner.plan import Build, CellPlan, Shape
from tuner.results.result import DispatchCondition
from tuner.space.limits import over_limit
from tuner.space.lower import lower
from tuner.space.requirements import served
from tuner.trial import Configuration, Infeasible, Value

NAME = "export.json"
FORMAT = 1
FALLBACK = "baseline"
"""The name of the variant that is the user's own kernel."""

_STRICT = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestVariant:
    """One exported source; the baseline has no template. ``note`` is for people."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    file: str
    configuration: dict[str, Value]
    note: str
    template: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRule:
    """Where all conditions hold, a variant serves; rules are disjoint and cover every shape."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    when: tuple[DispatchCondition, ...]
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestShape:
    """A shape of the spec, tune or held-out, and what serves it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    symbols: dict[str, Value]
    variant: str


@dataclass(frozen=True, slots=True)
class Served:
    """What runs on one shape: the variant, its build without sources, and its launches.

    The build has only the macros that the exported source does not define.
    """

    variant: ManifestVariant
    build: Build
    cell: CellPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An export. Texts of sources and headers are empty: they are files of their own.

    ``device`` is that of the run. ``otherwise`` names the variant that serves where that of
    ``rule`` cannot.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    format: int
    experiment: str
    device: Device
    kernel: Kernel
    arguments: tuple[Argument, ...]
    domain: tuple[Expression, ...]
    variants: tuple[ManifestVariant, ...]
    rule: tuple[ManifestRule, ...]
    shapes: tuple[ManifestShape, ...]
    otherwise: str

    @property
    def spec(self) -> Experiment:
        """The parts of the spec that launches need."""
        bindings = tuple(ShapeBinding(shape.symbols) for shape in self.shapes)
        return Experiment(
            version=1,
            name=self.experiment,
            kernel=self.kernel,
            arguments=self.arguments,
            shapes=Shapes(domain=self.domain, tune=bindings),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the sources and headers."""
        sources = (variant.file for variant in self.variants)
        return (*sources, *(name for name, _ in self.kernel.headers))

    def variant(self, name: str) -> ManifestVariant:
        """The variant of a name that is known."""
        return next(one for one in self.variants if one.name == name)

    def serve(self, symbols: Shape, device: Device, *, tuned: bool = True) -> Served | str:
        """What runs on a shape, or why nothing can.

        A tuned variant serves shapes of the domain, with a combination of types that the spec has,
        on the device model of the run; the baseline serves the rest.

        Args:
            symbols: the shape.
            device: where it is to run.
            tuned: whether tuned variants may serve at all.
        """
        names = [FALLBACK]
        if tuned and device.model == self.device.model and self._in_domain(symbols):
            names[:0] = [self._chosen(symbols), self.otherwise]
        reason = ""
        for variant in map(self.variant, dict.fromkeys(names)):
            found = self._lowered(variant, symbols, device)
            if isinstance(found, Served):
                return found
            reason = found
        return reason

    def _chosen(self, symbols: Shape) -> str:
        holding = (one for one in self.rule if all(test.holds(symbols) for test in one.when))
        return next((rule.variant for rule in holding), self.otherwise)

    def _in_domain(self, symbols: Shape) -> bool:
        types = _types(symbols)
        known = any(types == _types(shape.symbols) for shape in self.shapes)
        sizes = (value for name, value in symbols.items() if name not in types)
        positive = all(int(value) > 0 for value in sizes)
        return known and positive and all(one.evaluate(symbols) for one in served(self.spec))

    def _lowered(self, variant: ManifestVariant, symbols: Shape, device: Device) -> Served | str:
        spec = self.spec
        everywhere = replace(spec, shapes=replace(spec.shapes, domain=()))
        configuration = Configuration.of(variant.configuration)
        plan = lower(everywhere, variant.template, configuration, [ShapeBinding(symbols)], device)
        cell = plan.cells[0]
        if isinstance(cell, Infeasible):
            return cell.reason
        if excess := over_limit(plan, device):
            return excess.detail
        build, template = plan.builds[0], variant.template
        if template:  # its source defines the macros that do not depend on the shape
            given = {name for name, e in template.defines.items() if self._depends(e, variant)}
            defines = tuple((name, value) for name, value in build.defines if name in given)
            build = replace(build, defines=defines)
        return Served(variant, replace(build, file=variant.file), cell)

    def _depends(self, expression: Expression, variant: ManifestVariant) -> bool:
        """Whether a macro of a variant depends on the shape."""
        return bool(expression.bind(variant.configuration, self.device).names)


def manifest_variant(variant: ExportVariant) -> ManifestVariant:
    """A variant without its source's text."""
    template = variant.template
    return ManifestVariant(
        name=variant.name,
        file=variant.file,
        configuration=variant.configuration.as_dict(),
        note=variant.note,
        template=template and replace(template, source=_named(template.source), rationale=""),
    )


def make_manifest(
    experiment: Experiment,
    device: Device,
    variants: tuple[ManifestVariant, ...],
    rule: tuple[ManifestRule, ...],
    otherwise: str,
) -> Manifest:
    """The manifest of an export, with what serves each shape of the spec."""
    kernel = experiment.kernel
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    manifest = Manifest(
        format=FORMAT,
        experiment=experiment.name,
        device=device,
        kernel=replace(
            kernel,
            source=_named(kernel.source),
            headers=tuple((name, "") for name, _ in kernel.headers),
            include_dirs=(),
        ),
        # What buffers hold while tuning, perhaps files of this machine, is of no use elsewhere.
        arguments=tuple(
            replace(one, values="normal", initial="normal") for one in experiment.arguments
        ),
        domain=experiment.shapes.domain,
        variants=variants,
        rule=rule,
        shapes=tuple(ManifestShape(symbols=one.symbols, variant=FALLBACK) for one in shapes),
        otherwise=otherwise,
    )
    return replace(
        manifest,
        shapes=tuple(
            replace(one, variant=found.variant.name)
            if isinstance(found := manifest.serve(one.symbols, device), Served)
            else one
            for one in manifest.shapes
        ),
    )


def render_manifest(manifest: Manifest) -> str:
    """The text of ``export.json``."""
    data = _MANIFEST.dump_python(manifest, mode="json", exclude_defaults=True)
    return json.dumps(data, indent=1) + "\n"


def read_manifest(text: str) -> Manifest:
    """Parse the text of ``export.json``; :func:`check_manifest` is to follow.

    Raises:
        EnvironmentProblem: it is invalid, or of another format.
    """
    try:
        data = json.loads(text)
        given = data.get("format") if isinstance(data, dict) else None
        if given != FORMAT:
            raise EnvironmentProblem(
                f"{NAME} has format {given}, but this version reads {FORMAT}: export the run again"
            )
        return _MANIFEST.validate_json(text)
    except ValidationError as error:
        raise EnvironmentProblem(f"{NAME} is invalid: {first_problem(error)}") from None
    except (ValueError, RecursionError) as error:
        raise EnvironmentProblem(f"{NAME} is not JSON: {error}") from None


def check_manifest(manifest: Manifest, files: Mapping[str, str]) -> None:
    """Check what types cannot express, with the texts of the files beside the manifest.

    Raises:
        EnvironmentProblem: naming the first problem.
    """
    if problem := next(_problems(manifest, files), None):
        raise EnvironmentProblem(f"{NAME} is invalid: {problem}")


def _problems(manifest: Manifest, files: Mapping[str, str]) -> Iterator[str]:
    names = [variant.name for variant in manifest.variants]
    wanted = [manifest.otherwise, FALLBACK, *(rule.variant for rule in manifest.rule)]
    yield from (f"there is no variant {name!r}" for name in wanted if name not in names)
    yield from (f"the file {name} is missing" for name in manifest.files if name not in files)
    if not manifest.shapes:
        yield "there are no shapes"
        return
    kernel = replace(
        manifest.kernel,
        source=_with_text(manifest.kernel.source, files[manifest.variant(FALLBACK).file]),
    )
    for variant in manifest.variants:
        template = variant.template
        if (template is None) != (variant.name == FALLBACK):
            yield f"{variant.name}: every variant but {FALLBACK} has a template"
        elif template:
            template = replace(template, source=_with_text(template.source, files[variant.file]))
        launched = replace(manifest.spec, kernel=kernel, template=template)
        for finding in check(launched, exported=True):
            place = ".".join(map(str, finding.path))
            yield f"{variant.name}: {place}: {finding.message}"


def _with_text(source: Source, exported: str) -> Source:
    """The source as it was before parameter values were put before it."""
    before, line, text = exported.partition(f'#line 1 "{source.name}"\n')
    return replace(source, text=text if line else before)


def _named(source: Source) -> Source:
    return Source(name=source.name, text="")


def _types(symbols: Mapping[str, Value]) -> dict[str, str]:
    return {name: value for name, value in symbols.items() if isinstance(value, str)}


_MANIFEST = TypeAdapter(Manifest)
