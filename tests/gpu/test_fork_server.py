"""What forks the children that use a GPU never touches one itself."""

from pathlib import Path

import pytest

from workers.backends.cuda.nvml import parent_of
from workers.bench.supervisor import Deadlines, Supervisor

pytestmark = pytest.mark.gpu


def test_the_fork_server_loads_no_driver_and_runs_one_thread() -> None:
    bench = Supervisor("cuda", 0, Deadlines(), {})
    try:
        device, _ = bench.describe()
        assert device.backend == "cuda"
        server = Path(f"/proc/{parent_of(bench.pid)}")
        assert b"workers.fork_server" in (server / "cmdline").read_bytes()
        assert "libcuda.so" not in (server / "maps").read_text()
        assert len(list((server / "task").iterdir())) == 1
    finally:
        bench.close()
