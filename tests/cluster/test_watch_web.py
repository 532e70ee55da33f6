"""``watch --web``: what the server answers, to whom, and what it never does."""

import http.client
import os
import re
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html.parser import HTMLParser

import pytest

from cluster.watching.metrics import METRICS
from cluster.watching.server import WatchServer
from tests.cluster.test_watch import FACTS, SEARCHED, Writing
from tuner.errors import EnvironmentProblem
from tuner.journal.facts import WorkLost

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = '</td><script>alert(1)</script>"'


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with closing(Writing(tmp_path_factory.mktemp("watched") / "run")) as writing:
        lost = WorkLost(work=1, task="measure", worker=HOSTILE, reason=f"{HOSTILE}\nline")
        writing.write([*FACTS[: SEARCHED + 1], lost])
        yield writing


@pytest.fixture(scope="module")
def server(run):
    with WatchServer([run.path], 0) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def asked(server, path, method="GET", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)) as one:
        one.request(
            method, path, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )
        reply = one.getresponse()
        return reply, reply.read().decode()


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_loads_only_its_own_script_and_style(server):
    reply, text = asked(server, "/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    loaded = {
        attrs.get("src") or attrs.get("href")
        for tag, attrs in Tags(text).found
        if tag in ("script", "link", "img")
    }
    assert loaded == {"watch.js", "style.css", "data:,"}
    for name in ("/watch.js", "/style.css"):
        assert asked(server, name)[0].status == 200


def test_a_part_shows_a_run_with_foreign_text_escaped_and_comes_once(server):
    _, text = asked(server, "/runs/0")
    assert "search: 2/" in text
    assert "Best speedup against trials" in text
    assert "script" not in {tag for tag, _ in Tags(text).found}
    assert "&lt;script&gt;" in text
    again, nothing = asked(server, "/runs/0/rounds", If_None_Match='"other"')
    tag = again.headers["ETag"]
    assert again.status == 200
    again, nothing = asked(server, "/runs/0/rounds", If_None_Match=tag)
    assert (again.status, nothing) == (304, "")


def test_a_run_whose_path_is_not_utf_8_is_shown(run, tmp_path):
    path = tmp_path / "run\udcff"
    path.symlink_to(run.path)
    watched = WatchServer([path], 0)
    with watched, ThreadPoolExecutor(1) as pool:
        pool.submit(watched.serve_forever)
        for part in ("/", "/runs/0", "/metrics"):
            assert "run\\udcff" in asked(watched, part)[1]
        watched.shutdown()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_machine_is_refused(server, host):
    assert asked(server, "/", Host=host)[0].status == 403


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:1"])
def test_a_tunnel_may_have_another_port(server, host):
    assert asked(server, "/", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "path", ["/runs/1", "/runs/0/../../secret", "/runs/0/secret", "/x", "/runs/0/"]
)
def test_there_is_nothing_else(server, path):
    assert asked(server, path)[0].status == 404


def test_it_cannot_be_written_to(server):
    for method in ("POST", "PUT", "DELETE"):
        assert asked(server, "/", method)[0].status == 501


def test_a_report_may_run_nothing_and_a_link_in_its_place_is_not_followed(server, run, tmp_path):
    report = run.path / "report.html"
    assert asked(server, "/runs/0/report.html")[0].status == 404
    report.write_text("<p>whole")
    reply, text = asked(server, "/runs/0/report.html")
    assert text == "<p>whole"
    assert "sandbox" in reply.headers["Content-Security-Policy"]
    report.unlink()
    (tmp_path / "mine").write_text("precious")
    report.symlink_to(tmp_path / "mine")
    assert asked(server, "/runs/0/report.html")[0].status == 404
    report.unlink()


def test_metrics_are_in_the_format_of_prometheus_and_all_described(server):
    reply, text = asked(server, "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    sample = re.compile(r'([a-z_]+)\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} [0-9.e+-]+')
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = [sample.fullmatch(line)[1] for line in lines]
    assert set(names) <= {metric.name for metric in METRICS}
    assert names == sorted(names, key=names.index), "all of a metric stand together"
    assert f"# TYPE {names[0]} counter" in text
    run = re.escape(str(server.watched.names[0]))
    assert re.search(rf'trials_total{{run="{run}",outcome="measured",reason=""}} 1\n', text)
    assert 'outcome="rejected",reason="wrong_result"} 1\n' in text
    assert 'state="running"} 1\n' in text
    assert 'work="measure"} 1\n' in text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_is_not_answered(server):
    asks = 'exec 3<>"/dev/tcp/127.0.0.1/$0"; printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3; cat <&3'
    words = ["bash", "-c", asks, str(server.server_port)]
    told = [
        subprocess.run(words, user=user, cwd="/", capture_output=True, text=True, timeout=30)
        for user in (0, 65534)
    ]
    assert [one.stdout[:12] for one in told] == ["HTTP/1.0 403", ""]


def test_a_port_that_is_taken_is_said(server, run):
    with pytest.raises(EnvironmentProblem, match="name another with --port"):
        WatchServer([run.path], server.server_port)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_fills_the_page_and_complains_of_nothing(server, tmp_path):
    told = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}",
            "--enable-logging=stderr",
            "--virtual-time-budget=4000",
            "--dump-dom",
            server.address,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "search: 2/" in told.stdout
    assert "<svg" in told.stdout
    assert "CONSOLE" not in told.stderr
