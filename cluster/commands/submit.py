"""``submit``: run or resume on a cluster as a job, and follow it to the run's own exit code."""

import asyncio
import json
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from agents.settings import SECTIONS
from cluster.cli.console import say
from cluster.commands.find_spec import bundled_names, find_spec
from cluster.jobs.job_client import STOPPING, JobEnd, JobServer
from cluster.jobs.package_check import OURS
from cluster.runs.model_choice import transcript_beside
from cluster.runs.run_layout import new_name
from cluster.settings import take_job_server
from tuner.errors import SpecError
from tuner.experiment.load import dump_resolved, load_experiment
from tuner.files import plain_name

RUNS = "~/kernelwright-runs"
"""Where the run directories of jobs lie, in the home of the account that runs Ray."""

OWN_OPTIONS = ("--address", "--resume", "--follow", "--no-wait")

_SPEC = "spec.yaml"
_ROOT = Path(__file__).parents[2]


def submit(
    what: str,
    options: Sequence[str] | None,
    *,
    resume: bool,
    follow: bool,
    address: str | None,
    no_wait: bool,
) -> None:
    """Submit a run of the spec ``what`` with its ``options``, or follow what was submitted.

    Args:
        what: a spec; with ``resume`` a run directory on the cluster, with ``follow`` a job.
        options: those of ``run`` or ``resume``.
        resume: continue the run directory.
        follow: submit nothing.
        address: of Ray's job server.
        no_wait: end once the job is submitted.

    Raises:
        SpecError: the spec is invalid, or the options are contradictory.
        EnvironmentProblem: the cluster cannot be reached, its node has no Python, or the job ended
            without an exit code.
        SystemExit: with the run's exit code, or 130 or 143 after a signal, which the job survives.
    """
    options = options or []
    _check(options, resume=resume, follow=follow)
    url = http_address(take_job_server(address))
    if follow:
        job, server = what, JobServer(url)
    else:
        with tempfile.TemporaryDirectory(prefix="kernelwright-job-") as folder:
            job, command = _staged(what, options, Path(folder), resume=resume)
            server = JobServer(url)
            uri = server.submit(job, command, Path(folder))
        submitted = ["ray", "job", "submit", "--address", server.address, "--submission-id", job]
        environment = json.dumps({"working_dir": uri, "env_vars": STOPPING})
        submitted += ["--runtime-env-json", environment, "--", *shlex.split(command)]
        say(f"submitted: {shlex.join(submitted)}")
        say(f"job {job}")
    again = f"kernelwright submit --address {server.address} --follow {job}"
    if no_wait:
        say(f"follow it with: {again}")
        return
    ended = _followed(server, job, again)
    ended.check_began()
    ended.check_code(job, server.address)
    sys.exit(128 + signal.SIGTERM if ended.exit_code is None else _status(ended.exit_code))


def _check(options: Sequence[str], *, resume: bool, follow: bool) -> None:
    if resume and follow:
        raise SpecError("--resume submits a job and --follow does not: give one of them")
    if follow and options:
        raise SpecError(f"{options[0]}: a job that was submitted takes no more options")
    for option in OWN_OPTIONS:
        if any(word.partition("=")[0] == option for word in options):
            raise SpecError(f"{option} belongs before the spec, whose options go to the run")


def http_address(address: str) -> str:
    """The address of a job server, as the SDK takes it without asking a cluster for it."""
    if address.startswith(("http://", "https://")):
        return address
    raise SpecError(
        f"{address} is not the address of Ray's job server: give that of the dashboard, such as "
        "--address http://HEAD:8265"
    )


def _staged(what: str, options: Sequence[str], folder: Path, *, resume: bool) -> tuple[str, str]:
    """Put what a job needs into ``folder``: Kernelwright, and the spec with its sources inlined.

    Returns the job's name, which its run directory has too, and its command line.
    """
    words = ["python", "-m", "cluster"]
    for name in OURS:
        _copy(_ROOT / name, folder / name)
    if resume:
        job = job_name(Path(what).name)
        return job, f"{shlex.join([*words, 'resume'])} {place(what)} {shlex.join(options)}".strip()
    spec, name = what, what
    if what in bundled_names() and not Path(what).is_file():
        # Which of its specs is run depends on the cluster's devices.
        _copy(_ROOT / "deploy", folder / "deploy")
    else:
        path = find_spec(what, lambda: False)
        experiment = load_experiment(path, SECTIONS)
        spec, name = _SPEC, experiment.name
        (folder / spec).write_text(dump_resolved(experiment), encoding="utf-8")
        with suppress(FileNotFoundError):
            beside = transcript_beside(folder / spec, experiment)
            shutil.copyfile(transcript_beside(path, experiment), beside)
    job = job_name(name)
    command = shlex.join([*words, "run", spec, *options])
    if not any(word.partition("=")[0] == "--run-dir" for word in options):
        command += f" --run-dir {RUNS}/{job}"  # the job's shell knows the home
    return job, command


def place(run: str) -> str:
    """Where a run directory is on the cluster, for a shell there: a name is that of a job."""
    return f"{RUNS}/{run}" if plain_name(run) == run else shlex.quote(run)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def job_name(name: str) -> str:
    """A new job's name, which needs no quotes in a shell."""
    return new_name(plain_name(name))


def _followed(server: JobServer, job: str, again: str) -> JobEnd:
    """Print what a job prints until it ends; leave on a signal, and say how to go on."""

    async def follow() -> JobEnd | None:
        with _cancelling() as received:
            try:
                async for text in server.follow(job, say):
                    typer.echo(text, nl=False)
                return await asyncio.to_thread(server.end, job)
            except asyncio.CancelledError:
                say(
                    f"job {job} goes on; follow it with: {again}; stop it, to be resumed, with: "
                    f"ray job stop --address {server.address} {job}"
                )
                sys.exit(128 + received[0])

    ended = asyncio.run(follow())
    assert ended is not None, "what a job prints ends when it does"
    return ended


@contextmanager
def _cancelling() -> Iterator[list[signal.Signals]]:
    """Cancel the current task on a signal; yields a list of the signals that came."""
    received: list[signal.Signals] = []
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"

    def on_signal(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    yield received


def _status(code: int) -> int:
    """The status of a process as a shell has it: Ray's is negative after a signal."""
    return 128 - code if code < 0 else code
