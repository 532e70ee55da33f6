import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers import forking
from workers.backends.registry import preloaded_modules
from workers.child_environment import allowed_environment, module_environment
from workers.forking import ChildFailed
from workers.process import Child

MODULE = "tests.workers.children"


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(MODULE)
    yield made
    made.close()


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def state(pid: int) -> str:
    """As the kernel says it; X if the process is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return status.rsplit(")", 1)[1].split()[0]


def alive(pid: int) -> bool:
    return state(pid) not in "ZX"


def fork_server(pid: int) -> int:
    """The parent of a child."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def ask(child: Child, text: str, timeout: float = 20.0, **given: object) -> str:
    return child.request(text.encode(), timeout=timeout, **given)[0].decode()


def test_frames_come_back_whole(child) -> None:
    blobs = [b"", os.urandom(3_000_000), b"x"]
    assert child.request(b"echo", blobs, timeout=20) == (b"echo", blobs)


@pytest.mark.parametrize(
    ("text", "how", "says"),
    [
        (
            "exit",
            "died",
            "exited with status 0 without an answer; it last printed: result: speedup=99",
        ),
        (
            "fail",
            "died",
            "exited with status 1 without an answer; it last printed: ValueError: no such",
        ),
        ("crash", "died", "killed by SIGSEGV"),
        ("kill", "killed", "killed by SIGKILL"),
        ("garbage", "garbage", "sent a frame of"),
    ],
)
def test_no_answer_is_a_failure_and_the_next_request_works(child, text, how, says) -> None:
    with pytest.raises(ChildFailed) as failed:
        ask(child, text)
    assert failed.value.how == how
    assert says in failed.value.detail
    assert ask(child, "echo") == "echo"


def test_a_hang_ends_at_its_deadline(child) -> None:
    ask(child, "echo")
    pid = child.pid
    began = time.monotonic()
    with pytest.raises(ChildFailed) as failed:
        ask(child, "hang", timeout=0.3)
    assert failed.value.how == "hung"
    assert time.monotonic() - began < 5
    assert not alive(pid)
    assert ask(child, "echo") == "echo"


def test_memory_is_watched() -> None:
    child = Child(MODULE, memory_limit=300 << 20)
    with pytest.raises(ChildFailed) as failed:
        ask(child, "grow", timeout=60)
    assert failed.value.how == "memory"
    assert "300 are allowed" in failed.value.detail
    child.close()


def test_an_answer_over_its_limit_is_garbage(child) -> None:
    with pytest.raises(ChildFailed) as failed:
        ask(child, "too much", limit=999)
    assert failed.value.how == "garbage"


def test_output_never_blocks_and_is_bounded(child) -> None:
    assert ask(child, "shout") == "hoarse"
    assert len(child.log) <= 64 * 1024


def test_a_child_that_never_starts_says_so() -> None:
    child = Child(MODULE, ["never ready"])
    with pytest.raises(ChildFailed, match="exited with status 3"):
        child.start()


def test_one_killed_while_it_starts_is_started_once_more(tmp_path) -> None:
    child = Child(MODULE, [str(tmp_path / "was here")])
    assert ask(child, "echo") == "echo"
    child.close()


def test_no_key_reaches_a_child(child, monkeypatch) -> None:
    monkeypatch.setenv("LC_TEST", "for a new fork server")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("CUDA_SECRET_THING", "x")
    monkeypatch.setenv("RANDOM_SETTING", "x")
    seen = ask(child, "environment")
    assert "sk-1" not in seen
    assert "CUDA_SECRET_THING" not in seen
    assert "RANDOM_SETTING" not in seen
    for started_with in child.request(b"started with", timeout=20)[1]:
        names = {entry.partition(b"=")[0].decode() for entry in started_with.split(b"\0")}
        assert "LC_TEST" in names
        assert not names & {"OPENAI_API_KEY", "CUDA_SECRET_THING", "RANDOM_SETTING"}


def test_a_child_sees_the_environment_as_it_is_when_it_starts(child, monkeypatch) -> None:
    for value in "ab":
        monkeypatch.setenv("LC_TEST", value)
        assert json.loads(ask(child, "environment"))["LC_TEST"] == value
        child.kill()


def test_variables_of_one_child_are_its_own(tmp_path, child) -> None:
    own = Child(MODULE, environment={"TMPDIR": str(tmp_path)})
    assert json.loads(ask(own, "random"))[-1].startswith(str(tmp_path))
    assert json.loads(ask(child, "environment")).get("TMPDIR") != str(tmp_path)
    own.close()


def test_the_allow_list_keeps_what_python_and_devices_need() -> None:
    given = {"PATH": "a", "CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "b", "LC_ALL": "C"}
    assert allowed_environment(given | {"HF_TOKEN": "t", "AWS_PROFILE": "p"}) == given


def test_a_module_of_ours_is_found_first_and_what_the_user_added_after_it():
    root = str(Path(__file__).parents[2])
    assert module_environment({})["PYTHONPATH"] == root
    assert module_environment({"PYTHONPATH": "/site"})["PYTHONPATH"] == f"{root}{os.pathsep}/site"


def test_the_whole_process_group_dies(child) -> None:
    grandchild = int(ask(child, "grandchild"))
    assert alive(grandchild)
    child.kill()
    assert wait_for(lambda: not alive(grandchild))


@pytest.mark.parametrize("end", ["kill", "close", "crash"])
@pytest.mark.parametrize("how", ["detached", "forked"])
def test_what_left_the_group_dies_too(child, end, how) -> None:
    pid = int(ask(child, how))
    assert os.getsid(pid) != child.pid
    if end == "crash":
        with pytest.raises(ChildFailed):
            ask(child, "crash")
    else:
        getattr(child, end)()
    assert wait_for(lambda: not alive(pid))


def test_killed_from_outside_costs_one_request(child) -> None:
    ask(child, "echo")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildFailed, match="killed by SIGKILL"):
        ask(child, "echo")
    assert ask(child, "echo") == "echo"


def test_one_that_always_dies_is_asked_in_as_many_lives_as_it_has(child) -> None:
    with pytest.raises(ChildFailed, match="killed by SIGSEGV"):
        child.request(b"crash", timeout=10, attempts=2)
    ask(child, "echo")
    os.kill(child.pid, signal.SIGKILL)
    assert child.request(b"echo", timeout=10, attempts=2)[0] == b"echo"


def test_a_closed_child_stays_closed(child) -> None:
    ask(child, "echo")
    pid = child.pid
    child.close()
    child.close()
    assert not alive(pid)
    with pytest.raises(ChildFailed, match="closed"):
        ask(child, "echo")


@pytest.mark.parametrize("doing", ["echo", "hang"])
def test_a_child_dies_with_its_parent(doing: str) -> None:
    script = (
        "import sys, threading, time\n"
        "from workers.process import Child\n"
        f"child = Child({MODULE!r})\n"
        "child.request(b'echo', timeout=20)\n"
        "print(child.pid, child.request(b'server', timeout=20)[0].decode(), flush=True)\n"
        f"child.request({doing.encode()!r}, timeout=600)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert all(alive(pid) for pid in pids)
    parent.kill()
    parent.wait()
    assert wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_process_that_ends_says_nothing_of_the_children_that_end_with_it() -> None:
    script = (
        "import atexit, threading\n"
        "from workers.process import Child\n"
        f"child = Child({MODULE!r})\n"
        "child.request(b'echo', timeout=20)\n"
        "threading.excepthook = lambda failed: print(failed.exc_value)\n"
        "given = {'target': child.request, 'args': [b'hang'], 'kwargs': {'timeout': 600}}\n"
        "asking = threading.Thread(daemon=True, **given)\n"
        "asking.start()\n"
        "atexit.register(asking.join)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert (ended.stdout, ended.stderr) == ("killed with its fork server\n", "")


@pytest.fixture
def server(child) -> int:
    """The process that forks children."""
    return int(ask(child, "server"))


def test_a_fork_server_that_is_killed_takes_its_children_with_it_and_is_replaced(
    child, server, caplog
) -> None:
    idle = Child(MODULE)
    assert int(ask(idle, "server")) == server
    pids = [child.pid, idle.pid, int(ask(idle, "forked"))]
    os.kill(server, signal.SIGKILL)
    for one in (child, idle):
        with pytest.raises(ChildFailed, match="killed with its fork server") as failed:
            ask(one, "hang")
        carried = pickle.loads(pickle.dumps(failed.value))  # as Ray does
        assert (carried.how, carried.detail) == ("lost", str(failed.value))
    lost = f"lost the process of {MODULE}: killed with its fork server"
    assert [record.message for record in caplog.records] == [lost, lost]
    assert wait_for(lambda: not any(alive(pid) for pid in pids))
    assert int(ask(child, "server")) not in (server, os.getpid())
    idle.close()


def test_a_fork_server_that_hangs_is_replaced(child, server, monkeypatch) -> None:
    monkeypatch.setattr(forking, "START_SECONDS", 0.2)
    monkeypatch.setattr(forking, "KILL_SECONDS", 0.2)
    pid = child.pid
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(ChildFailed, match="forked nothing within") as failed:
        Child(MODULE).start()
    assert failed.value.how == "hung"
    child.kill()
    assert wait_for(lambda: not alive(server) and not alive(pid))
    monkeypatch.undo()
    assert ask(child, "echo") == "echo"


def test_what_is_stopped_is_killed_at_once(child, server) -> None:
    pid, began = child.pid, time.monotonic()
    for each in (server, pid):
        os.kill(each, signal.SIGSTOP)
    assert wait_for(lambda: state(server) == "T")
    child.kill()
    assert wait_for(lambda: not alive(server) and not alive(pid))
    assert time.monotonic() - began < forking.KILL_SECONDS / 2
    assert ask(child, "echo") == "echo"


@pytest.mark.parametrize(
    ("python", "says"),
    [
        ("/nowhere/python", "the fork server does not start: .*No such file"),
        (shutil.which("false"), "the fork server exited with status 1"),
    ],
)
def test_a_fork_server_that_does_not_start_says_so(monkeypatch, python, says) -> None:
    monkeypatch.setenv("LC_TEST", python)
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(ChildFailed, match=says):
        Child(MODULE).start()


def test_a_module_that_does_not_import_is_told_by_its_child() -> None:
    with pytest.raises(
        ChildFailed, match=r"exited with status 1 .*No module named 'tests\.nothing'"
    ):
        Child("tests.nothing").start()


def test_a_fork_server_runs_one_thread_and_no_driver() -> None:
    child = Child(MODULE, preload=preloaded_modules("opencl"))
    server = Path("/proc", ask(child, "server"))
    assert len(list((server / "task").iterdir())) == 1
    mapped = (server / "maps").read_text()
    assert "pyopencl" in mapped
    assert "pocl-" not in mapped
    child.close()


def test_a_forked_child_holds_its_channel_and_nothing_else(child) -> None:
    other = Child(MODULE)
    ask(other, "echo")
    assert len(json.loads(ask(child, "descriptors"))) == 4
    other.close()


def test_no_random_state_is_shared(child) -> None:
    other = Child(MODULE)
    drawn = [json.loads(ask(one, "random")) for one in (child, other)]
    assert not set(drawn[0]) & set(drawn[1])
    other.close()


def test_a_process_that_is_forked_has_a_server_of_its_own(child) -> None:
    assert ask(child, "echo") == "echo"
    forked = os.fork()
    if not forked:
        signal.alarm(60)  # ends a wait for what the parent alone has
        try:
            made = Child(MODULE)
            os._exit(ask(made, "echo") != "echo" or fork_server(made.pid) == fork_server(child.pid))
        finally:
            os._exit(2)
    assert os.waitpid(forked, 0)[1] == 0
    assert ask(child, "echo") == "echo"
