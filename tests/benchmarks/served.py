"""The bundled OpenCL experiments through LiteLLM's real client, against a server that misbehaves.

Usage: python -m tests.benchmarks.served [--fleet local|ray] [--json FILE]

A local server of OpenAI's protocol gives the recorded replies, with faults in between: it asks to
slow down, hangs up, fails, sends what is no JSON, an empty, a wrong and a cut reply. Exit code 1
unless every run improves its kernel, pays for each reply once and leaves the key in no file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agents.llm.replay import read_transcript
from agents.rounds_summary import read_summary
from tests.agents.llm.server import KEY, Behaviour, answers, completion, drops, fails, serving

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ("silu_and_mul", "fused_add_rmsnorm", "merge_attn_states_lse")
MODEL = "openai/gpt-4o-mini"
READ, WRITTEN = 1000, 500
"""Tokens that the server counts for each of its replies."""


def behaviours(replies: list[str]) -> Iterator[Behaviour]:
    """Each reply behind a few faults; what is paid for beside the replies are three of these."""
    faults = [
        [fails(429, f"slow down, {KEY}", retry_after="0"), drops, answers(completion(None))],
        [fails(500), answers(b"{"), answers(completion("```json\n{}\n```\n"))],
        [fails(503), answers(completion(replies[2][: len(replies[2]) // 2], finish="length"))],
    ]
    for number, reply in enumerate(replies):
        yield from faults[number] if number < len(faults) else ()
        yield answers(completion(reply))


def through(name: str, fleet: str, folder: Path) -> dict[str, Any]:
    """One experiment's run, and what it was charged."""
    given = ROOT / "deploy/experiments" / name
    recorded = read_transcript(given / "transcript_opencl.jsonl").exchanges
    replies = [exchange.reply.text for exchange in recorded]
    with serving(*behaviours(replies)) as server:
        spec = yaml.safe_load((given / "opencl.yaml").read_text())
        spec["agents"] |= {"base_url": server.url}
        path = folder / "spec" / "opencl.yaml"
        path.parent.mkdir()
        for file in given.iterdir():
            (path.parent / file.name).write_bytes(file.read_bytes())
        path.write_text(yaml.safe_dump(spec, sort_keys=False))
        run = folder / "run"
        words = ["run", str(path), "--fleet", fleet, "--run-dir", str(run), "--model", MODEL]
        words += ["--allow-endpoint", "127.0.0.1"]
        ran = subprocess.run(
            [sys.executable, "-m", "cluster", *words],
            cwd=ROOT,
            env=os.environ | {"OPENAI_API_KEY": KEY, "KERNELWRIGHT_HOME": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        asked = len(server.seen)
    summary = read_summary(run)
    texts = [path.read_text(errors="replace") for path in run.rglob("*") if path.is_file()]
    calls = len(replies) + 3
    found = {
        "experiment": name,
        "exit": ran.returncode,
        "end": ran.stdout.strip().splitlines()[-1:],
        "requests": asked,
        "paid": calls,
        "leaked": any(KEY in text for text in (*texts, ran.stdout, ran.stderr)),
    }
    if summary:
        spent = summary.spent
        found |= {
            "calls": spent.calls,
            "tokens": spent.input_tokens + spent.output_tokens,
            "cost_usd": round(spent.cost_usd, 6),
            "gained": summary.gained,
        }
    found["right"] = (
        not found["leaked"]
        and bool(found.get("gained"))
        and found["calls"] == calls
        and found["tokens"] == calls * (READ + WRITTEN)
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each experiment; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleet", choices=("local", "ray"), default="ray")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = []
    for name in EXPERIMENTS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(one := through(name, given.fleet, Path(folder)))
        print(
            f"{name}: exit {one['exit']}, {one['requests']} requests, {one.get('calls')} calls "
            f"charged of {one['paid']} paid, {one.get('tokens')} tokens, "
            f"{one.get('cost_usd')} USD, key {'LEAKED' if one['leaked'] else 'in no file'}; "
            f"{' '.join(one['end'])}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0 if all(one["right"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
