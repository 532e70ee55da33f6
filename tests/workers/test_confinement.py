"""What code from outside can reach: each attack runs for real, in the process of a reference."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tuner.experiment.fields import PythonFunction
from workers.confinement import unprotected
from workers.reference import ReferenceProcess

SECRET = "sk-not-for-a-reference-0123456789"

pytestmark = pytest.mark.skipif(bool(unprotected()), reason=f"open here: {unprotected()}")


@pytest.fixture(scope="module")
def reference():
    made = ReferenceProcess(seconds=20.0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def victim():
    """A process of this user that was started with a key, as the driver is."""
    environment = {"OPENAI_API_KEY": SECRET, "PATH": os.defpath}
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


@pytest.fixture
def attempt(reference):
    def run(statement: str) -> str:
        """The name of the error that a statement meets; what it leaves in ``got`` if it meets none.

        The statement runs in a reference.
        """
        text = (
            "import ctypes, os, pathlib, signal, socket, subprocess, sys, tempfile\n"
            "import numpy as np\n"
            "def f():\n"
            "    got = 'done'\n"
            "    try:\n"
            f"        {statement}\n"
            "    except OSError as error:\n"
            "        got = type(error).__name__\n"
            "    return np.frombuffer(got.encode(), np.uint8)\n"
        )
        function = PythonFunction(file="reference.py", text=text, function="f")
        return bytes(reference.call(function, {})[""]).decode()

    return run


@pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd/0", "root/etc/hostname"])
def test_no_other_process_can_be_read(attempt, victim, file) -> None:
    assert attempt(f"open('/proc/{victim.pid}/{file}', 'rb').read(1)") == "PermissionError"
    assert attempt(f"open('/proc/{os.getpid()}/{file}', 'rb').read(1)") == "PermissionError"


def test_no_environment_that_it_can_read_holds_a_key(reference, victim) -> None:
    text = (
        "import os, pathlib\n"
        "import numpy as np\n"
        "def f():\n"
        "    shown = repr(os.environ).encode()\n"
        "    for file in pathlib.Path('/proc').glob('[0-9]*/environ'):\n"
        "        try:\n"
        "            shown += file.read_bytes()\n"
        "        except OSError:\n"
        "            pass\n"
        "    return np.frombuffer(shown, np.uint8)\n"
    )
    assert SECRET in Path(f"/proc/{victim.pid}/environ").read_text()
    function = PythonFunction(file="reference.py", text=text, function="f")
    shown = bytes(reference.call(function, {})[""]).decode().upper()
    assert "KERNELWRIGHT_TREE" in shown
    assert not any(word in shown for word in ("API_KEY", "TOKEN", "SECRET", "PASSWORD"))


def test_files_of_the_user_are_out_of_reach(attempt, tmp_path) -> None:
    private = tmp_path / "private"
    private.write_text("mine")
    assert attempt(f"got = open({str(private)!r}).read()") == "PermissionError"
    assert attempt(f"open({str(private)!r}, 'w')") == "PermissionError"
    assert attempt(f"os.truncate({str(private)!r}, 0)") == "PermissionError"
    assert attempt(f"os.unlink({str(private)!r})") == "PermissionError"
    assert attempt(f"os.listdir({str(tmp_path)!r})") == "PermissionError"
    assert attempt(f"os.symlink('/', {str(tmp_path / 'link')!r})") == "PermissionError"
    assert attempt("os.listdir(os.path.expanduser('~'))") == "PermissionError"
    assert attempt("open('/dev/shm/x', 'w')") == "PermissionError"
    assert private.read_text() == "mine"


def test_this_project_is_read_only_and_its_users_runs_unread(attempt) -> None:
    root = Path(__file__).resolve().parent.parent.parent
    assert attempt(f"open({str(root / 'workers' / 'process.py')!r}).read()") == "done"
    assert attempt(f"open({str(root / 'workers' / 'new.py')!r}, 'w')") == "PermissionError"
    assert attempt(f"open({str(root / 'README.md')!r}).read()") == "PermissionError"


def test_there_is_no_network(attempt) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert attempt(f"socket.create_connection(('127.0.0.1', {port}), 5)") == "PermissionError"
    assert attempt("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)") == "PermissionError"
    assert attempt("socket.socket(socket.AF_INET6, socket.SOCK_RAW)") == "PermissionError"


def test_no_service_of_this_machine_can_be_reached(attempt, tmp_path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(place := str(tmp_path / "service"))
        assert attempt(f"socket.socket(socket.AF_UNIX).connect({place!r})") == "PermissionError"
        pair = "socket.socketpair(type=socket.SOCK_DGRAM)"
        assert attempt(f"{pair}[0].sendto(b'x', {place!r})") == "PermissionError"
    assert attempt("got = os.read(socket.socketpair()[0].detach(), 0).hex() or 'done'") == "done"


def test_no_memory_outlasts_its_processes(attempt) -> None:
    for call in ("shmget(77, 4096, 0o1600)", "semget(77, 1, 0o1600)", "msgget(77, 0o1600)"):
        assert attempt(f"got = str(ctypes.CDLL(None).{call})") == "-1"
    add_key = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    key = f"{add_key}, b'user', b'kept', b'x', 1, -4"
    assert attempt(f"got = str(ctypes.CDLL(None).syscall({key}))") == "-1"


def test_no_other_process_can_be_signalled(attempt, victim) -> None:
    for pid in (victim.pid, os.getpid()):
        assert attempt(f"os.kill({pid}, 0)") == "PermissionError"
    assert attempt("os.kill(os.getppid(), signal.SIGKILL)") == "PermissionError"
    assert attempt("os.kill(os.getpid(), 0)") == "done"


def test_how_other_processes_run_cannot_be_changed(attempt, victim) -> None:
    for call in (
        "os.sched_setaffinity({}, os.sched_getaffinity(0))",
        "os.setpriority(os.PRIO_PROCESS, {}, os.getpriority(os.PRIO_PROCESS, 0))",
        "__import__('resource').prlimit({}, 0, (9, 9))",
    ):
        assert attempt(call.format(victim.pid)) == "PermissionError"
    assert attempt("os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(0)") == "done"


def test_what_it_starts_is_confined_too(attempt, tmp_path) -> None:
    command = [sys.executable, "-c", f"open({str(tmp_path / 'x')!r}, 'w')"]
    assert "PermissionError" in attempt(
        f"got = subprocess.run({command!r}, capture_output=True, text=True).stderr"
    )


def test_its_own_folder_and_its_packages_work(attempt) -> None:
    assert attempt("tempfile.TemporaryFile().write(b'x')") == "done"
    assert attempt("import unittest.mock, yaml, jinja2; got = yaml.__name__") == "yaml"
    assert attempt("got = str(os.stat('/').st_uid)") == "0"


def test_numbers_are_as_without(reference) -> None:
    function = PythonFunction(
        file="r.py",
        text="import numpy as np\ndef f(x):\n    return np.linalg.inv(x) @ x",
        function="f",
    )
    x = np.random.default_rng(1).normal(size=(200, 200))
    assert np.allclose(reference.call(function, {"x": x})[""], np.eye(200))
