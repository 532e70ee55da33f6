"""The oracle: inputs of a shape, the baseline's outputs from its own child, the reference.

Owns how cases are made and kept: expected outputs are the float64 reference's where there is one,
the baseline's otherwise (:mod:`workers.bench.expectations`). Candidates never share a process with
it.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.contents import FromPython
from tuner.plan import CellPlan
from tuner.trial import Code, Rejected, Stage
from workers.bench.baseline_rejections import POISONS, differ, of_baseline
from workers.bench.case_pool import Case, CasePool
from workers.bench.deadlines import Deadlines
from workers.bench.expectations import BaselineRuns, Expectation
from workers.bench.input_specs import FIRST, REFERENCE_ELEMENTS, SEARCHED, InputSpec, total_elements
from workers.bench.oracle_files import OracleFiles, OracleRecord
from workers.bench.preparation import Preparation
from workers.bench.protocol import RunBurst
from workers.bench.supervisor import ChildLost, Supervisor
from workers.bounds import magnitude, output_bound
from workers.common_numbers import with_common_numbers
from workers.comparison import Expected
from workers.constants import not_constant
from workers.device_lock import PATIENCE_SECONDS, DeviceLock
from workers.devices.port import DeviceFailure
from workers.devices.staging import staged
from workers.elements import dtype_name, is_float, to_storage
from workers.groups import group_source
from workers.inputs import PythonFill, drawn_with, fill, flipped, is_foreign, stream
from workers.integrity.launch_checks import VerificationCase, damaged, rejected
from workers.reference import ReferencePool, reference_outputs, rounding_errors

_MAX_ODD_NS, _SLOWER = 2e8, 5.0
"""Limit of a launch of the baseline on an odd shape: so long, or so many times its slowest timed
shape. Such a shape may be far more work than its size says."""
_RUNS = 8
"""Runs of a baseline that varies."""


class Oracle:
    """Makes the verification cases of one experiment.

    Args:
        prep: experiment, baseline, secret, device and resolved arguments.
        server: a child of its own for the baseline.
        files: where inputs and expected outputs are kept.
        deadlines: how long the baseline may take.
        lock: held while the baseline runs; inputs and the reference need none.
    """

    def __init__(
        self,
        prep: Preparation,
        server: Supervisor,
        files: OracleFiles,
        deadlines: Deadlines,
        lock: DeviceLock,
    ) -> None:
        self._setup = prep.setup
        self._bindings = prep.bindings
        self._arguments = prep.arguments
        self._timed, self._baseline_ns = prep.timed, prep.baseline_ns
        self._is_cpu = prep.device.is_cpu
        self._given = {a.name for a in prep.setup.experiment.arguments if a.tolerance is not None}
        self._server = server
        self._files = files
        self._deadlines = deadlines
        self._lock = lock
        self._references = ReferencePool()
        self._module: int | None = None
        self._pool = CasePool(self._make, lambda shape: total_elements(prep.arguments[shape]))
        self._running = threading.RLock()
        self._notes: dict[str, None] = {}
        self._magnitudes: dict[str, float] = {}
        """Of outputs in the first case."""
        prep.python_fill = self.python_fill

    @property
    def notes(self) -> tuple[str, ...]:
        """Checks that were not done, and why."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Add to the notes, once."""
        self._notes[text] = None

    def case(self, shape: int, spec: InputSpec) -> Case:
        """A case on one shape, or why the baseline gives no outputs for it; made once."""
        return self._pool.case(shape, spec)

    def cases(self, wanted: Sequence[tuple[int, InputSpec]]) -> list[Case]:
        """Several cases, in order, made in parallel; narrower ones where they must be."""
        return self._pool.cases(wanted)

    def make_ahead(self, wanted: Sequence[tuple[int, InputSpec]]) -> None:
        """Begin to make cases beside what the bench does meanwhile.

        The baseline runs for them while nothing else holds the device.
        """
        self._pool.make_ahead(wanted)

    def settle(self) -> None:
        """Wait until no case is being made."""
        self._pool.settle()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Make no case meanwhile: on a processor even an idle child disturbs what is timed."""
        with self._pool.paused():
            if self._is_cpu:
                self.end_children()
            yield

    def python_fill(self, shape: int) -> PythonFill:
        """Calls functions of the spec that make inputs of a shape, in the reference process."""

        def call(function: FromPython, name: str, seed: int) -> NDArray[Any]:
            symbols = dict(self._bindings[shape].symbols)
            given: dict[str, Any] = {"shape": symbols, "argument": name, "seed": seed}
            with self._references.taken() as process:
                return process.call(function.python, given)[""]

        return call

    def end_children(self) -> None:
        """End the child process until the next case."""
        with self._running:
            self._module = None
            self._server.kill()

    def close(self) -> None:
        """End the child processes for good."""
        self._pool.close()
        self._server.close()
        self._references.close()
        self._files.close()

    def _make(self, shape: int, spec: InputSpec) -> Case:
        name = f"{shape}-{spec.digest}"
        record = self._files.get(name, lambda: self._record(name, shape, spec))
        for note in record.notes if spec in SEARCHED else ():  # others come at any time
            self.note(note)
        if record.rejected is not None:
            return record.rejected
        shapes = {a.name: a.shape for a in self._arguments[shape]}
        return VerificationCase(
            shape=shape,
            label=spec.described,
            contents=record.contents,
            expected=record.expected,
            keep_outputs=spec.flip,
            launches=spec.launches,
            wants={
                output: self._files.kept(
                    name, f"{output}.want", expected.path, expected.dtype, shapes[output]
                )
                for output, expected in record.expected.items()
            },
            bounds={
                output: self._files.kept(
                    name, f"{output}.bounds", expected.bounds, "float64", shapes[output]
                )
                for output, expected in record.expected.items()
                if expected.bounds is not None
            },
        )

    def _record(self, name: str, shape: int, spec: InputSpec) -> OracleRecord:
        try:
            found = self._make_record(name, shape, spec)
        except (DeviceFailure, SpecError) as error:
            if self._server.closed:  # the failure is no property of the baseline
                raise EnvironmentProblem("closed while a test case was made") from None
            if isinstance(error, DeviceFailure):
                if error.code is Code.HANG and not (self._baseline_ns or shape in self._timed):
                    raise EnvironmentProblem("how long it may take is not known yet") from None
                found = rejected(error, shape)
                if error.code is not Code.HANG or shape in self._timed:
                    found = of_baseline(found)
            else:
                found = Rejected(stage=Stage.VERIFY, code=Code.SPEC_ERROR, detail=str(error))
        if isinstance(found, Rejected):
            return OracleRecord(contents={}, expected={}, rejected=replace(found, shape=shape))
        return found

    def _make_record(self, name: str, shape: int, spec: InputSpec) -> OracleRecord | Rejected:
        arguments = self._arguments[shape]
        inputs = self._inputs(shape, spec)
        contents = {
            a.name: self._files.write(name, a.name, to_storage(inputs[a.name], a))
            for a in arguments
            if a.name in inputs
        }
        notes: list[str] = []
        expected: dict[str, Expected] = {}
        once = spec.launches == 1
        # Odd shapes may be too much work: there the baseline, whose time is limited, is first.
        runs = self._runs(shape, spec, contents) if spec.odd_shape else []
        roundings: dict[str, float] = {}
        reference = self._call_reference(shape, inputs, notes, roundings) if once else {}
        runs = runs or self._runs(shape, spec, contents)
        if isinstance(reference, SpecError):
            raise reference
        outputs = [a for a in arguments if a.is_output]
        sources = {source for a in outputs if (source := group_source(a))}
        kept = {name: inputs[name] for name in sources & inputs.keys()}
        inputs.clear()
        judged = BaselineRuns(spec, outputs, runs, kept, reference)
        for argument in outputs:
            if (problem := judged.refused(argument)) is not None:
                return problem
            own = self._own_bound(argument, judged.want(argument), shape, spec)
            least = roundings.get(argument.name, 0.0)
            own = replace(own, atol=max(own.atol, least), returned=argument.name in sources)
            found = judged.expectation(argument, own, given=argument.name in self._given)
            if isinstance(found, Rejected):
                return found
            if found is None:
                continue
            if found.varies:
                notes.append(f"{argument.name}: the baseline varies between runs; bound widened")
            if found.near:
                notes.append(
                    f"{argument.name}: the baseline itself errs by more than half of its "
                    "`tolerance`, and on other inputs by more than it allows, perhaps: allow more"
                )
            expected[argument.name] = self._kept(name, argument, found)
        return OracleRecord(contents=contents, expected=expected, notes=tuple(notes))

    def _kept(self, name: str, argument: ResolvedArgument, found: Expectation) -> Expected:
        """The expectation of an output with the paths of its files."""
        want, bounds = np.ascontiguousarray(found.want), found.bounds
        keep = self._files.keep
        return replace(
            found.tolerance,
            path=keep(name, f"{argument.name}.want", want),
            dtype=dtype_name(want.dtype),
            bounds=None if bounds is None else keep(name, f"{argument.name}.bounds", bounds),
        )

    def _runs(
        self, shape: int, spec: InputSpec, contents: Mapping[str, str]
    ) -> list[dict[str, bytes]]:
        """The baseline's outputs of two runs, or of more if these differ or may differ."""
        with self._lock.held(patience=PATIENCE_SECONDS), self._running:
            try:
                runs = self._run_baseline(shape, spec, contents, POISONS)
            except ChildLost:
                runs = self._run_baseline(shape, spec, contents, POISONS)
            atomic = any("atom" in build.source for build in self._setup.baseline.plan.builds)
            outputs = [a for a in self._arguments[shape] if a.is_output]
            varies = any(differ(a, runs[0][a.name], runs[1][a.name]) for a in outputs)
            if (atomic or varies) and spec.launches == 1:
                runs += self._run_baseline(shape, spec, contents, POISONS * (_RUNS // 2 - 1))
        return runs

    def _own_bound(
        self, argument: ResolvedArgument, want: NDArray[Any], shape: int, spec: InputSpec
    ) -> Expected:
        """The bound that the spec gives an output, before it is widened.

        An absolute tolerance in the spec is meant for the first case, a default one for numbers
        around 1: outputs of larger magnitude may have larger errors.
        """
        growth = 1.0
        given, first = argument.name in self._given, (self._timed[0], FIRST)
        if is_float(argument.dtype) and not (given and (shape, spec) == first):
            unit = self._first_magnitude(argument.name) if given else 1.0
            growth = magnitude(want) / unit if unit else 1.0
        return output_bound(argument, growth)

    def _first_magnitude(self, output: str) -> float:
        """The magnitude of an output in the first case; 0 if the baseline gives none there."""
        if output not in self._magnitudes:
            case = self.case(self._timed[0], FIRST)
            self._magnitudes[output] = (
                magnitude(case.wants[output]) if isinstance(case, VerificationCase) else 0.0
            )
        return self._magnitudes[output]

    def _inputs(self, shape: int, spec: InputSpec) -> dict[str, NDArray[Any]]:
        """Dense contents of every ``in``, ``constant`` and ``inout`` argument."""
        found: dict[str, NDArray[Any]] = {}
        given_inputs = [a for a in self._arguments[shape] if a.is_input]
        streams = {a.name: drawn_with(a, given_inputs) for a in given_inputs}
        redrawn = streams.get(spec.redraw) if spec.redraw else None
        for given in sorted(given_inputs, key=lambda a: not is_foreign(a)):
            argument = not_constant(given) if spec.varied else given
            labels = (shape, streams[argument.name])
            key = f"{redrawn} drawn anew" if labels[1] == redrawn else spec.key
            rng = stream(self._setup.secret, key, *labels)
            distribution = spec.distribution if spec.spare != argument.name else "default"
            if spec.redraw == argument.name:
                distribution = "large"
            values = fill(argument, rng, distribution, self.python_fill(shape))
            if spec.flip:
                values = flipped(values, argument, stream(self._setup.secret, "flip", *labels))
            if spec.shares(argument):
                rng = stream(self._setup.secret, "common", spec.key, *labels)
                values = with_common_numbers(values, argument, found, self._arguments[shape], rng)
            found[argument.name] = values
        return found

    def _run_baseline(
        self, shape: int, spec: InputSpec, contents: Mapping[str, str], poisons: Sequence[int]
    ) -> list[dict[str, bytes]]:
        """The baseline's outputs of a run on each of these poisons."""
        cell = self._setup.baseline.plan.cells[shape]
        if not isinstance(cell, CellPlan):
            raise DeviceFailure(Code.LAUNCH_FAILED, f"cannot be launched: {cell.reason}")
        server, limit_ns = self._server, self._limit_ns(shape)
        if self._module is None:
            self._module = server.load(self._setup.baseline.binaries)
        try:
            buffers = server.stage(staged(self._arguments[shape], contents), 1)
            launchable = server.bind(self._module, cell, buffers)
            deadline = min(self._deadlines.control, self._deadlines.first + limit_ns * 1e-9)
            requests = [
                RunBurst(
                    launchable=launchable,
                    order=(0,) * spec.launches,
                    poison=poison,
                    deadline=deadline,
                    inspect=0,
                    changed_only=True,
                )
                for poison in poisons
            ]
            runs = []
            for seen in server.run_bursts(requests):  # one runs while another's outputs arrive
                inspection, slowest_ns = seen.inspection, max(seen.times)
                assert inspection is not None
                if slowest_ns > limit_ns:
                    detail = f"the baseline takes {slowest_ns / 1e9:.2g} s: too long to check"
                    raise DeviceFailure(Code.HANG, detail)
                if inspection.damage is not None:
                    raise damaged(inspection.damage)
                runs.append(inspection.outputs)
            server.release(launchable, buffers)
        except DeviceFailure:
            self.end_children()
            raise
        return runs

    def _limit_ns(self, shape: int) -> float:
        if shape in self._timed:
            return math.inf
        return max(_MAX_ODD_NS, _SLOWER * max(self._baseline_ns.values(), default=0.0))

    def _call_reference(
        self,
        shape: int,
        inputs: Mapping[str, NDArray[Any]],
        notes: list[str],
        roundings: dict[str, float],
    ) -> dict[str, NDArray[Any]] | SpecError:
        """The reference's outputs, or why there are none; what rounding may make of them."""
        function = self._setup.experiment.reference
        if function is None:
            notes.append("no reference: the baseline alone is the oracle")
            return {}
        arguments = self._arguments[shape]
        if sum(a.elements for a in arguments if a.is_output) > REFERENCE_ELEMENTS:
            label = self._bindings[shape]
            notes.append(f"{label} is too large for the reference: the baseline alone judges")
            return {}
        try:
            with self._references.taken() as process:
                found = reference_outputs(process, function, arguments, inputs)
                roundings |= rounding_errors(process, function, arguments, inputs, found)
                return found
        except SpecError as error:
            return error
