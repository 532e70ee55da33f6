"""``record.json`` of an export: builds, launches and claims of each exported source.

With it and the spec, a run's numbers can be measured again without the template. It is validated
when read, like any outside input.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.export.variant import ExportVariant
from tuner.files import first_problem
from tuner.plan import Build, CellPlan, Plan, Shape
from tuner.results.result import Cell, Result
from tuner.space.lower import lower
from tuner.trial import Infeasible, Value

NAME = "record.json"
FORMAT = 1
_STRICT = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBuild:
    """How a source is compiled; ``defines`` has only macros that the source does not define."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    entries: tuple[str, ...]
    defines: tuple[tuple[str, int], ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claimed time (ns per run) and speedup of one variant on one shape."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    shape: int
    time_ns: float
    speedup: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedVariant:
    """One exported source; ``cells`` has one entry for each of the record's shapes."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    trial: int
    name: str
    file: str
    configuration: dict[str, Value]
    builds: tuple[RecordedBuild, ...]
    cells: tuple[Annotated[CellPlan | Infeasible, Field(discriminator="kind")], ...]
    claims: tuple[Claim, ...]

    def plan(self, experiment: Experiment, files: Mapping[str, str]) -> Plan:
        """The variant's plan, with sources from ``files``; a baseline's binary is the spec's."""
        binary = experiment.kernel.binary if self.trial == BASELINE else None
        cells = [cell for cell in self.cells if isinstance(cell, CellPlan)]
        variables = dict.fromkeys(name for cell in cells for name, _ in cell.variables)
        headers = tuple((name, files[name]) for name, _ in experiment.kernel.headers)
        builds = tuple(
            Build(
                language=experiment.kernel.language,
                file=self.file,
                source=files[self.file],
                entries=build.entries,
                defines=build.defines,
                options=build.options,
                headers=headers,
                variables=tuple(variables),
                image=binary.file.data if binary else "",
                symbols=tuple(binary.symbols.items()) if binary else (),
                compiler=experiment.kernel.compiler,
                macros=tuple(experiment.kernel.defines.items()),
            )
            for build in self.builds
        )
        return Plan(builds=builds, cells=self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRecord:
    """The shapes (tune, held-out, odd) and variants (the baseline first) of one export.

    ``device`` is the device model of the claims.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    format: int
    experiment: str
    device: str
    shapes: tuple[Shape, ...]
    variants: tuple[RecordedVariant, ...]


_RECORD = TypeAdapter(ExportRecord)


def render_record(
    experiment: Experiment, device: Device, variants: Mapping[int, ExportVariant], result: Result
) -> str:
    """The text of ``record.json``."""
    bindings = every_shape(experiment)
    recorded = []
    for trial, variant in variants.items():
        plan = lower(experiment, variant.template, variant.configuration, bindings, device)
        given = {name for name, e in variant.derived(device).items() if e.names}
        builds = tuple(
            RecordedBuild(
                entries=build.entries,
                defines=tuple((name, value) for name, value in build.defines if name in given),
                options=build.options,
            )
            for build in plan.builds
        )
        recorded.append(
            RecordedVariant(
                trial=trial,
                name=variant.name,
                file=variant.file,
                configuration=variant.configuration.as_dict(),
                builds=builds,
                cells=plan.cells,
                claims=tuple(_claims(trial, result)),
            )
        )
    record = ExportRecord(
        format=FORMAT,
        experiment=experiment.name,
        device=device.model,
        shapes=tuple(binding.symbols for binding in bindings),
        variants=tuple(sorted(recorded, key=lambda one: one.trial != BASELINE)),
    )
    return json.dumps(_RECORD.dump_python(record, mode="json"), indent=1) + "\n"


def read_record(text: str) -> ExportRecord:
    """Parse the text of ``record.json``.

    Raises:
        EnvironmentProblem: it is invalid, or of another format.
    """
    try:
        record = _RECORD.validate_json(text)
    except ValidationError as error:
        raise EnvironmentProblem(f"{NAME} is invalid: {first_problem(error)}") from None
    if record.format != FORMAT:
        raise EnvironmentProblem(
            f"{NAME} has format {record.format}, but this version reads {FORMAT}; export again"
        )
    return record


def _claims(trial: int, result: Result) -> list[Claim]:
    cells: Sequence[Cell] = ()
    if result.general and result.general.trial == trial:
        cells = result.general.cells
    elif result.portfolio:
        served = zip(result.portfolio.serves, result.portfolio.cells, strict=True)
        cells = [cell for by, cell in served if by == trial]
    return [
        Claim(
            shape=cell.shape,
            time_ns=cell.time_ns,
            speedup=cell.speedup,
            low=cell.comparison.low,
            high=cell.comparison.high,
        )
        for cell in cells
        if cell.comparison and cell.time_ns is not None and cell.speedup is not None
    ]
