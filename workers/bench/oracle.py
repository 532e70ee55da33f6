"""The right answers: inputs of a shape, the baseline's outputs in its own child, the reference.

Owns what is expected of every output and how near is near: the float64 reference where there is
one, the baseline otherwise, and a bound widened by the baseline's own error. Candidates never share
a process with it.
"""

import hashlib
import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import SpecError
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.model import FromPython, Ulp
from tuner.experiment.tolerances import BASELINE_ERRORS
from tuner.plan import CellPlan
from tuner.trial import Code, Rejected, Stage
from workers.bench.oracle_files import Answer, Answers
from workers.bench.preparation import Prep
from workers.bench.supervisor import Deadlines, LostChild, Shot, Supervisor
from workers.comparison import Comparison, Expected, Mode, compare
from workers.devices.port import DeviceFailure
from workers.devices.staging import staged
from workers.elements import from_storage, holding, is_float, to_storage
from workers.inputs import Distribution, fill, flipped, stream
from workers.integrity.launch_checks import Question, damaged, element_name, rejected
from workers.reference import ReferenceProcess

REFERENCE_ELEMENTS = 1 << 24
"""Above so many output elements the baseline alone is the oracle."""
AT_ONCE = 4
"""Questions made at once at most: each holds its inputs and two runs' outputs in memory."""
_BEARABLE_NS, _SLOWER = 2e8, 5.0
"""Where nothing is timed a launch of the baseline may take so long, or so many times as long as on
the slowest shape that is: an odd shape may be far more work than its size says."""
_LOOKED_AT = 2**16
"""Elements of an output that say how large it is."""
_POISONS = (0xFF, 0x7F)
_AGREE = Comparison(failures=0, unwritten=0, poisoned=0, index=0, got=0.0, want=0.0, error=0.0)
"""What comparing an output with itself says."""
_LEAVES_SOME = "launch as many blocks and threads as it needs, or say 'inout' if it leaves some be"
_READS_IT = "its kind is 'out': if the kernel reads it too, say 'inout'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the inputs of a question are drawn: random stream, distribution, what is changed after.

    The argument to ``spare`` keeps its own distribution. ``flip`` changes a few elements of every
    input, ``redraw`` draws one argument anew at large magnitude; the answer is what so many
    ``launches`` in a row leave.
    """

    label: str
    seed: str = "first"
    distribution: Distribution = "default"
    spare: str | None = None
    flip: bool = False
    redraw: str | None = None
    launches: int = 1

    @property
    def digest(self) -> str:
        """Twelve hex digits that tell it from others."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]


FIRST = Recipe(label="first seed")


class Oracle:
    """Makes questions for one experiment.

    Args:
        prep: experiment, baseline, secret, device and resolved arguments.
        server: a child of its own for the baseline.
        answers: where they are kept.
        deadlines: how long the baseline may take.
    """

    def __init__(
        self,
        prep: Prep,
        server: Supervisor,
        answers: Answers,
        deadlines: Deadlines,
    ) -> None:
        self._setup = prep.setup
        self._bindings = prep.bindings
        self._arguments = prep.arguments
        self._timed, self._baseline_ns = prep.timed, prep.baseline_ns
        self._given = {a.name for a in prep.setup.experiment.arguments if a.tolerance is not None}
        self._server = server
        self._answers = answers
        self._deadlines = deadlines
        self._reference = ReferenceProcess()
        self._module: int | None = None
        self._made: dict[tuple[int, Recipe], Question | Rejected] = {}
        self._running, self._referring = threading.Lock(), threading.Lock()
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not checked, and why."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Add to the notes, once."""
        self._notes[text] = None

    def ask(self, shape: int, recipe: Recipe) -> Question | Rejected:
        """A question on one shape, or why the baseline cannot answer it; made once."""
        if (shape, recipe) not in self._made:
            self._made[shape, recipe] = self._make(shape, recipe)
        return self._made[shape, recipe]

    def ask_all(self, wanted: Sequence[tuple[int, Recipe]]) -> list[Question | Rejected]:
        """Several questions, in order, made side by side."""
        workers = max(1, min(AT_ONCE, len(os.sched_getaffinity(0)) // 2))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda pair: self.ask(*pair), wanted))

    def rest(self) -> None:
        """End the children until the next question."""
        self._module = None
        self._server.kill()

    def close(self) -> None:
        """End the children for good."""
        self._server.close()
        self._reference.close()
        self._answers.close()

    def _make(self, shape: int, recipe: Recipe) -> Question | Rejected:
        name = f"{shape}-{recipe.digest}"
        answer = self._answers.get(name, lambda: self._answer(name, shape, recipe))
        for note in answer.notes:
            self.note(note)
        if answer.rejected is not None:
            return answer.rejected
        shapes = {a.name: a.shape for a in self._arguments[shape]}
        return Question(
            shape=shape,
            label=recipe.label,
            contents=answer.contents,
            expected=answer.expected,
            standing=recipe.flip,
            launches=recipe.launches,
            wants={
                output: self._answers.want(name, output, expected, shapes[output])
                for output, expected in answer.expected.items()
            },
        )

    def _answer(self, name: str, shape: int, recipe: Recipe) -> Answer:
        try:
            found = self._ask(name, shape, recipe)
        except DeviceFailure as failure:
            found = _baseline(rejected(failure, shape))
        except SpecError as error:
            found = Rejected(
                stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail=str(error), shape=shape
            )
        if isinstance(found, Rejected):
            return Answer(contents={}, expected={}, rejected=found)
        return found

    def _ask(self, name: str, shape: int, recipe: Recipe) -> Answer | Rejected:
        arguments = self._arguments[shape]
        inputs = self._inputs(shape, recipe)
        contents = {
            a.name: self._answers.write(name, a.name, to_storage(inputs[a.name], a))
            for a in arguments
            if a.name in inputs
        }
        with self._running:
            try:
                runs = self._run_baseline(shape, recipe, contents)
            except LostChild:
                runs = self._run_baseline(shape, recipe, contents)
        notes: list[str] = []
        expected: dict[str, Expected] = {}
        once = recipe.launches == 1
        reference = self._call_reference(shape, inputs, notes) if once else {}
        inputs.clear()
        for argument in arguments:
            if not argument.is_output:
                continue
            first, second = (from_storage(run[argument.name], argument) for run in runs)
            if (problem := _unwritten(argument, first, second)) is not None:
                return replace(problem, shape=shape)
            if once and recipe.distribution == "default" and _holds_no_number(argument, first):
                return _no_number(argument, shape)
            want = reference.get(argument.name, first)
            if argument.compare == "exact":
                want = want.astype(first.dtype)
            elif want is not first:
                want = _no_wider_than_needed(want, argument)
            own = self._own_bound(argument, want, shape, recipe)
            error = _AGREE if want is first else compare(first, want, own)
            if error.failures:
                return _disagreement(argument, error, own, shape, recipe)
            same = runs[0][argument.name] == runs[1][argument.name]
            noise = _AGREE if same else compare(second, first, own)
            if noise.failures and not once:
                continue  # it grows too fast to tell anything
            if math.isinf(noise.error):
                return _unsteady(argument, noise, shape)
            if noise.failures:
                notes.append(f"{argument.name}: the baseline varies between runs; bound widened")
            factor = max(1.0, BASELINE_ERRORS * max(error.error, noise.error))
            expected[argument.name] = replace(
                own,
                path=self._answers.expect(name, argument.name, np.ascontiguousarray(want)),
                dtype=str(want.dtype),
                rtol=own.rtol * factor,
                atol=own.atol * factor,
            )
        return Answer(contents=contents, expected=expected, notes=tuple(notes))

    def _own_bound(
        self, argument: ResolvedArgument, want: NDArray[Any], shape: int, recipe: Recipe
    ) -> Expected:
        """The bound that the spec gives an output, before it is widened.

        An absolute tolerance that is given is meant for the first answer, a default one for numbers
        around 1: where an answer is larger on the whole, so may its errors be.
        """
        mode: Mode = "ulp" if isinstance(argument.compare, Ulp) else argument.compare
        unit = 1.0
        if argument.name in self._given:
            first = (self._timed[0], FIRST)
            asked = None if (shape, recipe) == first else self.ask(*first)
            unit = magnitude(asked.wants[argument.name] if isinstance(asked, Question) else want)
        growth = magnitude(want) / unit if unit and is_float(argument.dtype) else 1.0
        return Expected(
            path="",
            dtype=argument.dtype,
            mode=mode,
            rtol=argument.tolerance.rtol,
            atol=argument.tolerance.atol * max(1.0, growth),
            ulp=argument.compare.ulp if isinstance(argument.compare, Ulp) else 0,
        )

    def _inputs(self, shape: int, recipe: Recipe) -> dict[str, NDArray[Any]]:
        """Dense contents of every ``in``, ``constant`` and ``inout`` argument."""
        found = {}
        for argument in self._arguments[shape]:
            if argument.kind not in ("in", "constant", "inout"):
                continue
            labels = (shape, argument.name)
            rng = stream(self._setup.secret, recipe.seed, *labels)
            distribution = recipe.distribution if recipe.spare != argument.name else "default"
            if recipe.redraw == argument.name:
                rng = stream(self._setup.secret, recipe.label, *labels)
                distribution = "large"

            def python(function: FromPython, name: str, seed: int) -> NDArray[Any]:
                symbols = dict(self._bindings[shape].symbols)
                call: dict[str, Any] = {"shape": symbols, "argument": name, "seed": seed}
                with self._referring:
                    return self._reference.call(function.python, call)[""]

            values = fill(argument, rng, distribution, python)
            if recipe.flip:
                values = flipped(values, argument, stream(self._setup.secret, "flip", *labels))
            found[argument.name] = values
        return found

    def _run_baseline(
        self, shape: int, recipe: Recipe, contents: Mapping[str, str]
    ) -> list[dict[str, bytes]]:
        """The baseline's outputs, twice, the second time on another poison."""
        cell = self._setup.baseline.plan.cells[shape]
        if not isinstance(cell, CellPlan):
            raise DeviceFailure(Code.LAUNCH_FAILED, f"cannot be launched: {cell.reason}")
        server, bearable_ns = self._server, self._bearable_ns(shape)
        if self._module is None:
            self._module = server.load(self._setup.baseline.binaries)
        try:
            buffers = server.stage(staged(self._arguments[shape], contents), 1)
            launchable = server.bind(self._module, cell, buffers)
            runs = []
            order = (0,) * recipe.launches
            for poison in _POISONS:
                shot = Shot(
                    launchable=launchable,
                    order=order,
                    poison=poison,
                    deadline=min(
                        self._deadlines.control, self._deadlines.first + bearable_ns * 1e-9
                    ),
                    inspect=0,
                )
                ((times, seen, _),) = server.fire([shot])
                assert seen is not None
                if max(times) > bearable_ns:
                    detail = f"a launch takes {max(times) / 1e9:.2g} s, which is too long to check"
                    raise DeviceFailure(Code.HANG, detail)
                if seen.damage is not None:
                    raise damaged(seen.damage, recipe.label)
                runs.append(seen.outputs)
            server.release(launchable, buffers)
        except DeviceFailure:
            self.rest()
            raise
        return runs

    def _bearable_ns(self, shape: int) -> float:
        if shape in self._timed:
            return math.inf
        return max(_BEARABLE_NS, _SLOWER * max(self._baseline_ns.values(), default=0.0))

    def _call_reference(
        self, shape: int, inputs: Mapping[str, NDArray[Any]], notes: list[str]
    ) -> dict[str, NDArray[Any]]:
        function = self._setup.experiment.reference
        if function is None:
            notes.append("no reference: the baseline alone is the oracle")
            return {}
        outputs = [a for a in self._arguments[shape] if a.is_output]
        if sum(a.elements for a in outputs) > REFERENCE_ELEMENTS:
            notes.append(
                f"{self._bindings[shape]} is too large for the reference: the baseline alone judges"
            )
            return {}
        call: dict[str, Any] = {}
        for argument in self._arguments[shape]:
            if argument.name in inputs:
                wide = np.float64 if is_float(argument.dtype) else inputs[argument.name].dtype
                call[argument.name] = inputs[argument.name].astype(wide)
            elif argument.kind == "scalar":
                call[argument.name] = argument.value
        with self._referring:
            answer = self._reference.call(function, call)
        if set(answer) == {""} and len(outputs) == 1:
            answer = {outputs[0].name: answer[""]}
        place = f"reference {function.file}:{function.function}"
        if missing := [a.name for a in outputs if a.name not in answer]:
            raise SpecError(f"{place} returns no {', '.join(missing)}")
        for a in outputs:
            if answer[a.name].shape != a.shape:
                raise SpecError(
                    f"{place}: {a.name} has shape {answer[a.name].shape}, not {a.shape}"
                )
        return {a.name: answer[a.name] for a in outputs}


def magnitude(values: NDArray[Any]) -> float:
    """How large the numbers of an array are that are none of 0, infinity and NaN: their median.

    Of a large array some are looked at; 0 where there are none.
    """
    flat = values.reshape(-1)
    some = np.abs(flat[:: flat.size // _LOOKED_AT | 1].astype(np.float64))
    numbers = some[(some > 0) & np.isfinite(some)]
    return float(np.median(numbers)) if numbers.size else 0.0


def _no_wider_than_needed(want: NDArray[Any], argument: ResolvedArgument) -> NDArray[Any]:
    """Half the bytes to move in each check: 24 bits of precision are plenty for bounds of 16."""
    narrow = argument.dtype in ("float16", "bfloat16") and argument.compare == "close"
    with np.errstate(over="ignore"):
        return want.astype(np.float32) if narrow else want


def _unwritten(
    argument: ResolvedArgument, first: NDArray[Any], second: NDArray[Any]
) -> Rejected | None:
    """Elements that hold the poison of both runs were never written."""
    if argument.kind != "out":
        return None
    kept = np.ones(first.size, bool)
    for run, poison in zip((first, second), _POISONS, strict=True):
        kept &= holding(run.reshape(-1), poison)
    if not kept.any():
        return None
    place = element_name(argument, int(np.flatnonzero(kept)[0]))
    detail = f"the baseline never writes {np.count_nonzero(kept)} elements, such as {place}"
    detail += f"; {_READS_IT}" if kept.all() else f"; {_LEAVES_SOME}"
    return Rejected(stage=Stage.VERIFY, code=Code.NOT_WRITTEN, detail=detail)


def _holds_no_number(argument: ResolvedArgument, run: NDArray[Any]) -> bool:
    """Whether an ``out`` is NaN throughout: what comes of reading the poison that it held."""
    if argument.kind != "out" or not is_float(argument.dtype):
        return False
    return bool(np.isnan(run.flat[0]) and np.isnan(run).all())


def _no_number(argument: ResolvedArgument, shape: int) -> Rejected:
    detail = f"the baseline leaves NaN in every element of {argument.name}; {_READS_IT}"
    return Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail=detail, shape=shape)


def _disagreement(
    argument: ResolvedArgument, found: Comparison, own: Expected, shape: int, recipe: Recipe
) -> Rejected:
    place = element_name(argument, found.index)
    return Rejected(
        stage=Stage.VERIFY,
        code=Code.WRONG_RESULT,
        detail=f"the baseline disagrees with its reference: {place} is {found.got:.6g}, "
        f"expected {found.want:.6g} ({found.error:.3g} times the tolerance; {found.failures} of "
        f"{argument.elements} elements; {_bound(argument, own)}); {recipe.label}",
        shape=shape,
    )


def _bound(argument: ResolvedArgument, own: Expected) -> str:
    """How near is near, and where that is said."""
    if argument.compare != "close":
        return f"the spec compares {argument.name} otherwise than by a tolerance"
    return f"the `tolerance` of {argument.name} is rtol {own.rtol:g}, here atol {own.atol:.3g}"


def _unsteady(argument: ResolvedArgument, found: Comparison, shape: int) -> Rejected:
    place = element_name(argument, found.index)
    return Rejected(
        stage=Stage.VERIFY,
        code=Code.WRONG_RESULT,
        detail=f"the baseline is not deterministic: {place} was {found.want:.6g}, then "
        f"{found.got:.6g} on the same inputs; give {argument.name} a tolerance, or compare it "
        "unordered",
        shape=shape,
    )


def _baseline(rejection: Rejected) -> Rejected:
    return replace(rejection, detail=f"the baseline itself fails: {rejection.detail}")
