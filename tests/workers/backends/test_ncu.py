"""What a report of Nsight Compute is read as, whole, refused or damaged."""

import pytest

from workers.backends.cuda.ncu import METRICS, profiler, read_csv

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(launch, metric, value):
    return (
        f'"{launch}","7","python3.12","127.0.0.1","k(float *, int)","1","7","(256, 1, 1)",'
        f'"(64, 1, 1)","0","9.0","Command line profiler metrics","{metric}","%","{value}"'
    )


REPORT = "\n".join(
    [
        "==PROF== Connected to process 7 (/usr/bin/python3.12)",
        '==PROF== Profiling "k" - 0: 0%....100% - 9 passes',
        "==PROF== Disconnected from process 7",
        HEADER,
        row(0, "gpu__time_duration.sum", "1,234"),
        row(0, "lts__t_sector_hit_rate.pct", "11.5"),
        row(1, "gpu__time_duration.sum", "12,345"),
        row(1, "lts__t_sector_hit_rate.pct", "40.25"),
        row(1, "dram__bytes_read.sum", "8,388,608"),
        row(1, "launch__occupancy_limit_registers", "n/a"),
        row(1, "something__else.sum", "3"),
    ]
)


def test_the_longest_launch_is_read():
    assert read_csv(REPORT) == (("DRAM bytes read", 8388608.0), ("L2 hit rate %", 40.25))


@pytest.mark.parametrize(
    "log",
    ["", "==ERROR== ERR_NVGPUCTRPERM", HEADER, HEADER + '\n"0"', HEADER + "\n\0\0", '"ID"\n"1"'],
)
def test_a_report_without_figures_has_no_counters(log):
    assert read_csv(log) == ()


def test_every_counter_has_a_name_of_its_own():
    assert len(set(METRICS.values())) == len(METRICS) >= 20


def test_where_the_tool_is_missing_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    found = profiler(tmp_path / "log")
    assert found == "Nsight Compute is not installed: no counters were read"


def test_a_report_of_a_failure_gives_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/bin/ncu")
    found = profiler(tmp_path / "log")
    assert not isinstance(found, str)
    assert found.counters(REPORT) == read_csv(REPORT)
    assert "may not read performance counters" in found.counters("==ERROR== ERR_NVGPUCTRPERM")
    assert found.counters("==ERROR== broken\n") == "broken"
