"""What every device backend does. An adapter's test class inherits this and says how to compile.

Runs in the test's own process, so its kernels are all harmless to it.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep, Scratch
from tuner.trial import Code
from workers.comparison import Expected, compare
from workers.devices.port import (
    BufferSets,
    DeviceBackend,
    DeviceFailure,
    EnergyMeter,
    Launchable,
    OtherContents,
    OwnInputs,
    RepeatingLaunchable,
    StagedBuffer,
    Variation,
)
from workers.devices.staging import staged_scalar

N = 1000
POISON = 0xFF


class DeviceBackendConformance:
    """Inherit, and give :meth:`backend` and :meth:`compiled`.

    The kernels, by name, over ``(out, x, y, n)``, float32 and int32: ``affine`` writes
    ``out = 2 x + y``; ``nothing`` returns; ``behind`` and ``before`` write one float outside
    ``out``; ``overwrite`` sets ``x[5]``; ``add`` does ``out += x``; ``counts`` adds to every
    element how often this loaded module was launched; ``staged`` copies ``x`` to ``scratch`` and
    ``scratch`` to ``out``, over ``(out, x, scratch, n)``.
    """

    @pytest.fixture
    @abstractmethod
    def backend(self) -> Iterator[DeviceBackend]:
        raise NotImplementedError

    @abstractmethod
    def compiled(self, entry: str) -> Binary:
        raise NotImplementedError

    @pytest.fixture
    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(3)
        return {name: rng.standard_normal(N).astype(np.float32) for name in ("x", "y", "out")}

    def stage(
        self,
        backend: DeviceBackend,
        folder: Path,
        arrays: dict[str, np.ndarray],
        *,
        sets: int = 3,
        out: str = "out",
        align: int = 4,
        varies: Variation | None = None,
    ) -> BufferSets:
        buffers = []
        for name in ("out", "x", "y"):
            kind = out if name == "out" else "in"
            path = folder / name
            path.write_bytes(arrays[name].tobytes())
            buffers.append(
                StagedBuffer(
                    name=name,
                    kind=kind,
                    dtype="float32",
                    shape=(N,),
                    strides=(1,),
                    size=4 * N,
                    align=align,
                    contents=str(path) if kind != "out" else None,
                    varies=varies if kind != "out" else None,
                )
            )
        return backend.stage([*buffers, staged_scalar("n", "int32", N)], sets)

    def bind(
        self, backend: DeviceBackend, buffer_sets: BufferSets, entry: str, **step: object
    ) -> Launchable:
        return self.bind_module(
            backend, backend.load([self.compiled(entry)]), buffer_sets, entry, **step
        )

    def bind_module(
        self,
        backend: DeviceBackend,
        module: object,
        buffer_sets: BufferSets,
        entry: str,
        **step: object,
    ) -> Launchable:
        scratch = ()
        arguments = ("out", "x", "y", "n")
        if entry == "staged":
            arguments = ("out", "x", "scratch", "n")
            scratch = (Scratch(name="scratch", dtype="float32", elements=N, align=4),)
        fields = {"grid": (8, 1, 1), "block": (128, 1, 1), "arguments": arguments} | step
        steps = (KernelStep(entry=entry, **fields),)
        return backend.bind(module, CellPlan(build=0, steps=steps, scratch=scratch), buffer_sets)

    def seen(self, buffer_sets: BufferSets, index: int, want: np.ndarray, folder: Path) -> int:
        """Failing elements of ``out``, compared wherever this backend compares."""
        contents = want.astype(np.float64).tobytes()
        path = folder / f"want-{hashlib.sha256(contents).hexdigest()}"
        path.write_bytes(contents)
        expected = Expected(path=str(path), dtype="float64", mode="close", rtol=1e-5, atol=1e-5)
        inspection = buffer_sets.inspect(index, {"out": expected})
        assert inspection.damage is None
        if "out" in inspection.comparisons:
            return inspection.comparisons["out"].failures
        got = np.frombuffer(inspection.outputs["out"], np.float32)
        return compare(got, want.astype(np.float64), expected).failures

    def test_describes_its_device(self, backend) -> None:
        device = backend.device
        assert device.name
        assert device.max_threads_per_block >= 128
        assert min(device.max_block) >= 1
        assert device.max_shared_bytes_per_block > 0
        assert "float32" in device.dtypes
        assert set(backend.identity) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
        )

    def test_launches_the_sets_it_is_told_in_order(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays)
        launchable = self.bind(backend, buffer_sets, "affine")
        buffer_sets.restore([0, 1, 2], POISON)
        times = launchable.burst([2, 0])
        assert len(times) in (1, 2)
        assert all(time > 0 for time in times)
        want = 2 * arrays["x"] + arrays["y"]
        assert self.seen(buffer_sets, 0, want, tmp_path) == 0
        assert self.seen(buffer_sets, 2, want, tmp_path) == 0
        assert self.seen(buffer_sets, 1, want, tmp_path) == N

    def test_an_output_is_poisoned_before_each_launch(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1)
        honest = self.bind(backend, buffer_sets, "affine")
        buffer_sets.restore([0], POISON)
        honest.burst([0])
        honest.release()
        idle = self.bind(backend, buffer_sets, "nothing")
        buffer_sets.restore([0], POISON)
        idle.burst([0])
        assert self.seen(buffer_sets, 0, 2 * arrays["x"] + arrays["y"], tmp_path) == N

    def test_outputs_may_stand_while_inputs_change(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=2)
        honest = self.bind(backend, buffer_sets, "affine")
        idle = self.bind(backend, buffer_sets, "nothing")
        buffer_sets.restore([0, 1], POISON)
        honest.burst([0, 1])
        before = 2 * arrays["x"] + arrays["y"]
        fresh = np.arange(N, dtype=np.float32)
        (tmp_path / "fresh").write_bytes(fresh.tobytes())
        buffer_sets.refill({"x": str(tmp_path / "fresh")})
        buffer_sets.restore([1], None)
        idle.burst([1])
        assert self.seen(buffer_sets, 1, before, tmp_path) == 0
        buffer_sets.restore([1], None)
        honest.burst([1])
        assert self.seen(buffer_sets, 1, 2 * fresh + arrays["y"], tmp_path) == 0
        buffer_sets.restore([1], POISON)
        assert self.seen(buffer_sets, 1, before, tmp_path) == N

    def test_an_inout_is_restored_before_each_launch(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1, out="inout")
        launchable = self.bind(backend, buffer_sets, "add")
        for _ in range(2):
            buffer_sets.restore([0], POISON)
            launchable.burst([0])
            assert self.seen(buffer_sets, 0, arrays["out"] + arrays["x"], tmp_path) == 0

    @pytest.mark.parametrize("where", ["front", "back"])
    def test_guards_tell_on_a_write_outside(self, backend, arrays, tmp_path, where) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=2)
        launchable = self.bind(backend, buffer_sets, "before" if where == "front" else "behind")
        buffer_sets.restore([0, 1], POISON)
        launchable.burst([1])
        damage = buffer_sets.inspect(1, {}).damage
        assert damage is not None
        assert (damage.argument, damage.where) == ("out", where)
        assert buffer_sets.inspect(0, {}).damage is None
        buffer_sets.refill({})
        buffer_sets.restore([1], POISON)
        assert buffer_sets.inspect(1, {}).damage is None

    def test_a_change_to_an_idle_set_is_seen(self, backend, arrays, tmp_path) -> None:
        for out in ("out", "inout"):
            buffer_sets = self.stage(backend, tmp_path, arrays, out=out)
            launchable = self.bind(backend, buffer_sets, "affine")
            buffer_sets.restore([0, 1, 2], POISON)
            assert buffer_sets.touched([0, 1, 2]) is None
            launchable.burst([1])
            assert buffer_sets.touched([0, 2]) is None
            damage = buffer_sets.touched([0, 1, 2])
            assert damage is not None
            assert (damage.argument, damage.where) == ("out", "idle")
            launchable.release()

    def test_a_changed_input_is_seen_and_mended(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1)
        launchable = self.bind(backend, buffer_sets, "overwrite")
        buffer_sets.restore([0], POISON)
        launchable.burst([0])
        damage = buffer_sets.inspect(0, {}).damage
        assert damage is not None
        assert (damage.argument, damage.where) == ("x", "input")
        assert 20 <= damage.offset < 24
        buffer_sets.refill({})
        buffer_sets.restore([0], POISON)
        assert buffer_sets.inspect(0, {}).damage is None

    def test_refilling_changes_every_set(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=2)
        launchable = self.bind(backend, buffer_sets, "affine")
        fresh = np.arange(N, dtype=np.float32)
        (tmp_path / "fresh").write_bytes(fresh.tobytes())
        buffer_sets.refill({"x": str(tmp_path / "fresh")})
        buffer_sets.restore([0, 1], POISON)
        launchable.burst([0, 1])
        for index in (0, 1):
            assert self.seen(buffer_sets, index, 2 * fresh + arrays["y"], tmp_path) == 0

    @pytest.mark.parametrize("out", ["out", "inout"])
    def test_one_set_holds_other_contents_for_one_burst(
        self, backend, arrays, tmp_path, out
    ) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, out=out)
        launchable = self.bind(backend, buffer_sets, "affine" if out == "out" else "add")
        fresh = {"x": np.arange(N, dtype=np.float32) + 1}
        if out == "inout":
            fresh["out"] = fresh["x"] / 2
        for name, values in fresh.items():
            (tmp_path / f"fresh-{name}").write_bytes(values.tobytes())
        paths = {name: str(tmp_path / f"fresh-{name}") for name in fresh}
        for other in (None, OtherContents(set_index=1, contents=paths), None):
            buffer_sets.restore([0, 1, 2], POISON, other)
            launchable.burst([0, 1, 2])
            held = arrays if other is None else arrays | fresh
            want = 2 * held["x"] + held["y"] if out == "out" else held["out"] + held["x"]
            for index in (0, 1, 2) if other is None else (1,):
                assert self.seen(buffer_sets, index, want, tmp_path) == 0

    @pytest.mark.parametrize("out", ["out", "inout"])
    @pytest.mark.parametrize("kind", ["mixed", "rotated", "nudged"])
    def test_each_set_holds_inputs_of_its_own_for_one_burst(
        self, backend, arrays, tmp_path, kind, out
    ) -> None:
        varies = Variation(kind=kind, limits=(1.0, 999.5) if kind == "mixed" else None)
        arrays |= {"y": np.zeros(N, np.float32), "out": np.zeros(N, np.float32)}
        arrays["x"] = np.arange(1, N + 1, dtype=np.float32)
        buffer_sets = self.stage(backend, tmp_path, arrays, varies=varies, out=out)
        launchable = self.bind(backend, buffer_sets, "affine" if out == "out" else "add")

        def held(seed: int, index: int) -> np.ndarray:
            own = OwnInputs(seed=seed, set_index=index)
            buffer_sets.restore([0, 1, 2], POISON, own)
            launchable.burst([2, 0, 1])
            seen = buffer_sets.inspect(index, {})
            assert seen.damage is None
            return np.frombuffer(seen.outputs["out"], np.float32) / (2 if out == "out" else 1)

        found = [held(7, index) for index in (0, 1, 2)]
        assert all(np.array_equal(held(7, index), found[index]) for index in (2, 0, 1))
        others = [*found, held(8, 1)]
        assert not any(np.array_equal(a, b) for a, b in combinations([arrays["x"], *others], 2))
        for one in others:
            if kind == "nudged":
                assert (one != arrays["x"]).all()
                assert np.allclose(one, arrays["x"], rtol=1e-6)
                continue
            near = 0.125 if kind == "mixed" else 0.0
            ring = np.roll(one, -int(np.flatnonzero(one < 2)[0]))
            assert np.allclose(ring, arrays["x"], rtol=near, atol=0.0)
            assert kind == "rotated" or (ring != arrays["x"]).mean() > 0.5
            assert 1.0 <= one.min() <= one.max() <= N
        buffer_sets.restore([0, 1, 2], POISON)
        launchable.burst([0, 1, 2])
        want = (2 if out == "out" else 1) * arrays["x"]
        assert all(self.seen(buffer_sets, index, want, tmp_path) == 0 for index in (0, 1, 2))

    def test_of_an_output_only_the_part_that_is_asked_for_is_returned(
        self, backend, arrays, tmp_path
    ) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays)
        launchable = self.bind(backend, buffer_sets, "affine")
        buffer_sets.restore([0, 1, 2], POISON)
        launchable.burst([1])
        whole = buffer_sets.inspect(1, {}).outputs["out"]
        assert len(whole) == 4 * N
        assert buffer_sets.inspect(1, {}, {"out": (40, 4 * N)}).outputs == {"out": whole[40:]}

    def test_a_loaded_module_starts_without_a_past(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=2, out="inout")
        for _ in range(2):
            module = backend.load([self.compiled("counts")])
            launchable = self.bind_module(backend, module, buffer_sets, "counts")
            for launches in (1, 2):
                buffer_sets.restore([0], POISON)
                launchable.burst([0])
                assert self.seen(buffer_sets, 0, arrays["out"] + launches, tmp_path) == 0
            launchable.release()
            module.release()

    def test_each_launchable_has_scratch_of_its_own(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays)
        bound = [self.bind(backend, buffer_sets, entry) for entry in ("staged", "affine", "staged")]
        wants = (arrays["x"], 2 * arrays["x"] + arrays["y"], arrays["x"])
        for launchable, want in [*zip(bound, wants, strict=True)] * 2:
            buffer_sets.restore([0, 1, 2], POISON)
            launchable.burst((1, 0, 2))
            assert all(self.seen(buffer_sets, index, want, tmp_path) == 0 for index in range(3))
        bound[1].release()
        bound[2].release()
        buffer_sets.restore([0], POISON)
        bound[0].burst((0,))
        assert self.seen(buffer_sets, 0, arrays["x"], tmp_path) == 0
        bound[0].release()

    def test_scratch_lives_as_long_as_the_launchable(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=2)
        for _ in range(2):
            launchable = self.bind(backend, buffer_sets, "staged")
            buffer_sets.restore([0, 1], POISON)
            launchable.burst([1, 0])
            assert self.seen(buffer_sets, 1, arrays["x"], tmp_path) == 0
            launchable.release()

    def test_memsets_are_part_of_a_launch(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1)
        module = backend.load([self.compiled("add")])
        kernel = KernelStep(
            entry="add", grid=(8, 1, 1), block=(128, 1, 1), arguments=("out", "x", "y", "n")
        )
        cell = CellPlan(build=0, steps=(MemsetStep(argument="out", byte=0), kernel))
        launchable = backend.bind(module, cell, buffer_sets)
        buffer_sets.restore([0], POISON)
        launchable.burst([0])
        assert self.seen(buffer_sets, 0, arrays["x"], tmp_path) == 0

    @pytest.mark.parametrize(
        ("step", "code"),
        [
            ({"block": (1 << 16, 1, 1)}, Code.THREADS),
            ({"grid": (0, 1, 1)}, Code.GRID),
            ({"shared_bytes": 1 << 30}, Code.SHARED_MEMORY),
        ],
    )
    def test_a_launch_over_the_limits_is_refused(
        self, backend, arrays, tmp_path, step, code
    ) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1)
        with pytest.raises(DeviceFailure) as refused:
            self.bind(backend, buffer_sets, "affine", **step)
        assert refused.value.code == code
        assert not refused.value.sticky

    def test_energy_grows_while_launches_are_repeated(self, backend, arrays, tmp_path) -> None:
        before = backend.millijoules() if isinstance(backend, EnergyMeter) else None
        if before is None:
            pytest.skip("this device measures no energy")
        buffer_sets = self.stage(backend, tmp_path, arrays)
        launchable = self.bind(backend, buffer_sets, "affine")
        assert isinstance(launchable, RepeatingLaunchable)
        buffer_sets.restore([0, 1, 2], POISON)
        counts: list[int] = []

        def go_on(launches: int) -> bool:
            counts.append(launches)
            return backend.millijoules() == before and launches < 1_000_000

        launchable.repeat((2, 0), go_on)
        assert backend.millijoules() > before
        assert counts == sorted(set(counts))
        assert all(count % 2 == 0 for count in counts)
        want = 2 * arrays["x"] + arrays["y"]
        assert [self.seen(buffer_sets, index, want, tmp_path) for index in range(3)] == [0, N, 0]

    def test_rotation_holds_what_was_asked(self, backend) -> None:
        for size in (1, 4096, 1 << 20, 1 << 30):
            for cache in ("cold", "hot"):
                rotation = backend.rotation(size, cache, 20, 100)
                assert rotation.sets >= 1
                assert rotation.sets * rotation.warmup >= 20
                assert rotation.sets * rotation.bursts >= 100
