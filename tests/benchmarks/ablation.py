"""Searched templates against whole kernels, on equal budgets and from recorded replies.

Usage: python -m tests.benchmarks.ablation [--experiment silu_and_mul] [--language opencl]
       [--seconds 60] [--json FILE]

Replays the bundled experiment twice: as it is, and with ``mode: direct``, in which a model rewrites
the kernel and nothing is searched. Both have the same rounds, calls and seconds of searching; the
replies are recorded, the measurements are made here and now.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from agents.rounds_summary import read_summary
from agents.step_journal import recorded_exchanges

ROOT = Path(__file__).parents[2]
MODES = ("template", "direct")


def measure(experiment, language, mode, seconds, folder):
    """One run: a row of the table."""
    copied = folder / mode
    shutil.copytree(ROOT / "deploy" / "experiments" / experiment, copied)
    spec = copied / f"{language}.yaml"
    text = spec.read_text()
    agents = yaml.safe_load(text)["agents"] | {"model": "replay", "mode": mode}
    given = re.search(r"^agents: .*$", text, re.MULTILINE)
    spec.write_text(text.replace(given[0], f"agents: {json.dumps(agents)}"))
    run = folder / f"{mode}-run"
    command = [sys.executable, "-m", "cluster", "run", str(spec), "--fleet", "local"]
    command += ["--run-dir", str(run), "--seconds", str(seconds), "--json"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result, summary = json.loads(ran.stdout), read_summary(run)
    trials = [
        json.loads(line)
        for rows in sorted(run.glob("rounds/*/results.jsonl"))
        for line in rows.read_text().splitlines()
    ]
    return {
        "mode": mode,
        "speedup": result["speedup"],
        "rounds": len(summary.rounds),
        "calls": len(recorded_exchanges(run / "llm")),
        "trials": len(trials),
        "device_seconds": sum(trial["device_seconds"] for trial in trials),
    }


def table(rows):
    """The rows as text."""
    lines = [
        f"{'mode':<10} {'speedup':>8} {'rounds':>7} {'calls':>6} {'trials':>7} {'device s':>9}"
    ]
    lines += [
        f"{row['mode']:<10} {row['speedup']:>8.2f} {row['rounds']:>7} {row['calls']:>6} "
        f"{row['trials']:>7} {row['device_seconds']:>9.1f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--experiment", default="silu_and_mul")
    parser.add_argument("--language", default="opencl", choices=["opencl", "cuda"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure(options.experiment, options.language, mode, options.seconds, Path(folder))
            for mode in MODES
        ]
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
