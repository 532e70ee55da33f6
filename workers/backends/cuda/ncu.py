"""Nsight Compute: where it is, which counters it reads, and how its report is parsed.

Decides nothing: a profile is for people and models. Clocks are left alone, so the figures are
shares and ratios rather than times.
"""

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path

from workers.backends.cuda import installation
from workers.checkers.tool import Profiler, Tool

_NAME = "Nsight Compute"
_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"
_RESTRICTED = "RmProfilingAdminOnly: 1"
_CAP_SYS_ADMIN = 21
_DURATION = "gpu__time_duration.sum"

METRICS: Mapping[str, str] = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM throughput %",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "DRAM throughput %",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 throughput %",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 throughput %",
    "dram__bytes_read.sum": "DRAM bytes read",
    "dram__bytes_write.sum": "DRAM bytes written",
    "l1tex__t_sector_hit_rate.pct": "L1 hit rate %",
    "lts__t_sector_hit_rate.pct": "L2 hit rate %",
    _SECTORS.format("ld"): "sectors per global load",
    _SECTORS.format("st"): "sectors per global store",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy %",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots used %",
    "launch__registers_per_thread": "registers a thread",
    "launch__occupancy_limit_registers": "blocks allowed by registers",
    "launch__occupancy_limit_shared_mem": "blocks allowed by shared memory",
    "launch__occupancy_limit_warps": "blocks allowed by warps",
    "launch__waves_per_multiprocessor": "waves",
    _STALLED.format("long_scoreboard"): "stalled on global memory",
    _STALLED.format("short_scoreboard"): "stalled on shared memory or special functions",
    _STALLED.format("barrier"): "stalled at barriers",
    _STALLED.format("math_pipe_throttle"): "stalled on arithmetic pipes",
    _STALLED.format("lg_throttle"): "stalled on too many memory instructions",
}
"""Counters by Nsight Compute's names, and what they are called for people.

Stalls are the mean number of warps that wait for the reason whenever one is issued.
"""


def profiler(log: Path) -> Profiler | str:
    """Nsight Compute, writing to ``log``; or that it is not installed."""
    program = installation.program("ncu")
    if program is None:
        return f"{_NAME} is not installed: no counters were read"
    tool = Tool(
        name=_NAME,
        command=(
            *(program, "--csv", "--page", "details", "--print-units", "base"),
            *("--clock-control", "none", "--cache-control", "all"),
            *("--metrics", ",".join([_DURATION, *METRICS])),
            *("--target-processes", "all", "--log-file", str(log)),
        ),
        log=log,
        most_bytes=1 << 30,
        read=lambda _: (),
    )
    return Profiler(tool=tool, counters=lambda text: read_csv(text) or _reason(text))


def counters_refused(
    parameters: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status")
) -> str | None:
    """Why this user may not read performance counters; ``None`` if the driver does not say so."""
    try:
        restricted = _RESTRICTED in parameters.read_text(encoding="utf-8").splitlines()
        capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    if not restricted or (capabilities and int(capabilities[1], 16) >> _CAP_SYS_ADMIN & 1):
        return None
    return (
        "the driver lets administrators alone read performance counters: load the module nvidia "
        "with NVreg_RestrictProfilingToAdminUsers=0, or grant CAP_SYS_ADMIN"
    )


def read_csv(log: str) -> tuple[tuple[str, float], ...]:
    """The counters of the longest launch in a report, in the order of :data:`METRICS`.

    Lines before the header, counters not asked for, and values that are no number are left out.
    """
    lines = log.splitlines()
    header = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        return ()
    launches: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines[header:]):
        name, text = row.get("Metric Name") or "", row.get("Metric Value") or ""
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            continue
        if math.isfinite(value):
            launches.setdefault(row.get("ID") or "", {})[name] = value
    if not launches:
        return ()
    longest = max(launches.values(), key=lambda found: found.get(_DURATION, 0.0))
    return tuple((label, longest[name]) for name, label in METRICS.items() if name in longest)


def _reason(log: str) -> str:
    """The tool's own reason for a failure, on one line; empty if it gives none."""
    if "ERR_NVGPUCTRPERM" in log:
        return "this user may not read performance counters (ERR_NVGPUCTRPERM)"
    said = (line for line in log.splitlines() if line.startswith("==ERROR=="))
    return next(said, "").removeprefix("==ERROR==").strip()[:300]
