"""What forks the children that use a GPU never touches one itself."""

from pathlib import Path

import pytest

from workers.backends.cuda.nvml import parent_of
from workers.bench.deadlines import Deadlines
from workers.bench.supervisor import Supervisor

pytestmark = pytest.mark.gpu


def test_the_fork_server_opens_no_gpu_and_runs_one_thread(tmp_path) -> None:
    bench = Supervisor("cuda", 0, Deadlines(), tmp_path)
    try:
        device, _ = bench.describe()
        assert device.backend == "cuda"
        server = Path(f"/proc/{parent_of(bench.pid)}")
        assert b"workers.fork_server" in (server / "cmdline").read_bytes()
        assert "cupy" in (server / "maps").read_text()
        opened = [str(path.readlink()) for path in (server / "fd").iterdir()]
        assert not [path for path in opened if path.startswith("/dev/nvidia")]
        assert len(list((server / "task").iterdir())) == 1
    finally:
        bench.close()
