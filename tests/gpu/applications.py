"""``profile``, ``capture`` and ``inject`` of whole applications on a GPU: a step of the visit.

``python -m tests.gpu.applications OUT`` builds a C++ application with nvcc (static CUDA runtime),
tunes its kernel by a spec written by hand, and puts that program and a PyTorch program with a CUDA
graph through each command; then through a run of the spec that their capture drafts. Every part has
its own time-out and its own log in ``OUT``; a table of what was seen ends the output. PyTorch is
looked for in this interpreter, then in ``$PYTORCH_PYTHON`` and ``python3``.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workers.interposer.recording import read_image, read_recording

DATA = Path(__file__).parent / "data" / "applications"
KERNEL = "silu_kernel"


@dataclass(slots=True)
class Parts:
    """Runs parts, each with a time-out and a log; keeps a line for each."""

    out: Path
    lines: list[str] = field(default_factory=list)
    failed: int = 0

    def run(self, name: str, seconds: float, *command: object, code: int = 0) -> str:
        """Run a command to its end or its time-out; its output, also in ``OUT/NAME.log``."""
        words = [str(word) for word in command]
        began = time.monotonic()
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=seconds
            )
            output, ended = done.stdout + done.stderr, str(done.returncode)
        except subprocess.TimeoutExpired as late:
            output, ended = str(late.stdout or b""), "time-out"
        except OSError as error:
            output, ended = str(error), "not started"
        (self.out / f"{name}.log").write_text(f"{' '.join(words)}\n{output}")
        good = ended == str(code)
        self.failed += not good
        mark = "ok" if good else f"FAILED ({ended})"
        self.say(f"{name:<28} {time.monotonic() - began:6.1f} s  {mark}")
        return output

    def say(self, line: str) -> None:
        """Keep a line for the table, and print it."""
        self.lines.append(line)
        print(line, flush=True)

    def check(self, name: str, good: bool, detail: object = "") -> None:
        """Keep the outcome of a check."""
        self.failed += not good
        self.say(f"  {name}: {'ok' if good else 'WRONG'} {detail}".rstrip())


def kernelwright(*words: object) -> list[object]:
    return [sys.executable, "-m", "cluster", *words]


def torch_interpreter() -> str | None:
    for python in (sys.executable, os.environ.get("PYTORCH_PYTHON"), shutil.which("python3")):
        probe = [python, "-c", "import torch; assert torch.cuda.is_available()"]
        if python and not subprocess.run(probe, capture_output=True, timeout=120).returncode:
            return python
    return None


def figures(output: str) -> dict[str, float]:
    """The numbers that an application printed."""
    found = re.findall(r"(checksum|eager|graph|launch) (-?[\d.]+)", output)
    return {name: float(value) for name, value in found}


def launches(text: str) -> dict[str, int]:
    """Eager launches, launches in graphs and shapes of the kernel, from a profile's JSON."""
    start = text.find("\n{\n") + 1
    document, _ = json.JSONDecoder().raw_decode(text[start:])
    [kernel] = [one for one in document["kernels"] if KERNEL in one["name"]]
    untimed = sum(one["timed"] == 0 for one in kernel["shapes"])
    shapes = len(kernel["shapes"])
    return {key: kernel[key] for key in ("eager", "in_graphs")} | {
        "shapes": shapes,
        "untimed": untimed,
        "share_percent": round(100 * kernel["share"]),
    }


def observe(parts: Parts, name: str, app: Sequence[object], run: Path, kernel: list[str]) -> None:
    """Put one application through every command, and compare what it computed."""
    plain = figures(parts.run(f"{name}.plain", 90, *app))

    def same(command: str, output: str, tolerance: float = 1e-4) -> None:
        seen = figures(output)
        checksums = seen.get("checksum"), plain.get("checksum")
        good = None not in checksums and abs(checksums[0] - checksums[1]) <= tolerance * (
            abs(checksums[1]) + 1
        )
        detail = f"{checksums[0]}; eager {seen.get('eager')} ms, graph {seen.get('graph')} ms"
        parts.check(f"{command}: checksum", good, detail)

    same("plain again", parts.run(f"{name}.plain2", 90, *app))
    table = parts.run(f"{name}.profile", 90, *kernelwright("profile", "--", *app))
    same("profile", table)
    found = parts.run(f"{name}.profile_json", 90, *kernelwright("profile", "--json", "--", *app))
    try:
        parts.say(f"  profile: {launches(chr(10) + found)}")
    except (ValueError, KeyError) as error:
        parts.check("profile: JSON", False, error)
    taken = parts.out / f"{name}.captured"
    words = ("capture", "--kernel", KERNEL, "-o", taken, "--max-mib", 64, "--", *app)
    same("capture", parts.run(f"{name}.capture", 120, *kernelwright(*words)))
    try:
        recording = read_recording(taken)
        captured = [one for one in recording.launches if one.captured]
        graphs = sum(one.from_graph for one in captured)
        image = recording.kernels[0].image
        kind = f"{image.kind}, {len(read_image(taken, image))} bytes" if image else "no image"
        detail = f"{len(captured)}, {graphs} in a graph; {kind}"
        parts.check("capture: shapes", bool(captured and graphs), detail)
    except Exception as error:
        parts.check("capture: recording", False, error)
    drafted = parts.out / f"{name}.run"
    words = ("init", DATA / "silu_kernel.cuh", "--capture", taken)
    parts.run(f"{name}.draft", 90, *kernelwright(*words))
    words = ("run", taken / "spec.yaml", "--fleet", "local", "--model", "none", "--seconds", 30)
    output = parts.run(f"{name}.tune", 150, *kernelwright(*words, "--run-dir", drafted))
    for line in output.splitlines()[-4:]:
        parts.say(f"  {line}")
    shutil.rmtree(taken / "buffers", ignore_errors=True)
    shutil.rmtree(taken / "data", ignore_errors=True)
    substituted(parts, f"{name}.drafted", app, same, ("inject", drafted))
    substituted(parts, name, app, same, ("inject", *kernel, run))


def substituted(
    parts: Parts,
    name: str,
    app: Sequence[object],
    same: Callable[[str, str], None],
    given: Sequence[object],
) -> None:
    """Run an application with the tuned kernels of one run: verified, plain, and beside itself."""
    verify = kernelwright(*given, "--verify", "--", *app)
    output = parts.run(f"{name}.verify", 180, *verify)
    same(f"{name}: verify", output)
    told(parts, output)
    output = parts.run(f"{name}.inject", 120, *kernelwright(*given, "--", *app))
    same(f"{name}: inject", output)
    told(parts, output)
    times = kernelwright(*given, "--repeat", 3, "--", *app)
    told(parts, parts.run(f"{name}.repeat", 300, *times))


def told(parts: Parts, output: str) -> None:
    """Keep what ``inject`` says of the kernel and of the times."""
    for line in output.splitlines():
        if line.startswith((KERNEL, "end to end", "  ")) or "kernelwright:" in line:
            parts.say(f"  {line.strip()}")


def overhead(parts: Parts, app: Path, run: Path) -> None:
    """The host time of a launch without and with each command."""
    missing = parts.out / "none"
    commands = {
        "plain": [],
        "profile": kernelwright("profile", "--"),
        "capture of another": kernelwright("capture", "--kernel", "zzz", "-o", missing, "--"),
        "inject": kernelwright("inject", run, "--"),
    }
    for mode in ("tiny", "small"):
        for name, words in commands.items():
            idle = name == "capture of another" or (name == "inject" and mode == "tiny")
            log = f"overhead.{mode}.{name.split()[0]}"
            output = parts.run(log, 90, *words, app, mode, code=4 if idle else 0)
            parts.say(f"  {mode}, {name}: {figures(output).get('launch')} µs a launch")


def main() -> int:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    parts = Parts(out)
    app, run = out / "application", out / "run"
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    parts.run("build", 120, nvcc, "-O2", "-arch=native", DATA / "application.cu", "-o", app)
    tuned = kernelwright("run", DATA / "silu.yaml", "--fleet", "local", "--run-dir", run)
    for line in parts.run("tune", 150, *tuned).splitlines()[-14:]:
        parts.say(f"  {line}")
    observe(parts, "cpp", [app], run, [])
    python = torch_interpreter()
    if python is None:
        parts.check("torch: an interpreter with PyTorch and a GPU", False)
    else:
        program = [python, DATA / "torch_program.py"]
        observe(parts, "torch", program, run, ["--kernel", KERNEL])
    overhead(parts, app, run)
    (out / "table.txt").write_text("\n".join(parts.lines) + "\n")
    app.unlink(missing_ok=True)
    return int(parts.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
