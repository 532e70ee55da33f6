"""Campaign files: strict like specs; and folders of specs."""

import pytest

from cluster.campaigns.plan import load_campaign
from tests.cluster.kernels import ROOT
from tuner.errors import EnvironmentProblem, SpecError

SPEC = "kernel: {}\n"


def write(folder, text):
    (folder / "night.yaml").write_text(text)
    for name in ("a/spec.yaml", "b/spec.yaml", "c.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(SPEC)
    return folder / "night.yaml"


def test_runs_are_in_order_of_priority_with_names_and_paths(tmp_path):
    made = load_campaign(
        write(
            tmp_path,
            "version: 1\nseconds: 28800\nruns:\n"
            "  - {spec: c.yaml, gpus: 2, seconds: 60, trials: 9, model: none}\n"
            "  - {spec: a/spec.yaml, priority: 1}\n"
            "  - {spec: b/spec.yaml, priority: 1}\n"
            "  - {spec: silu_and_mul, priority: -1}\n"
            "  - {spec: silu_and_mul/opencl, priority: -1, name: silu}\n",
        )
    )
    assert (made.name, made.seconds) == ("night", 28800)
    assert [run.name for run in made.runs] == ["a_spec", "b_spec", "c", "silu_and_mul", "silu"]
    assert [run.spec for run in made.runs][1:4] == [
        str(tmp_path / "b" / "spec.yaml"),
        str(tmp_path / "c.yaml"),
        "silu_and_mul",
    ]
    assert made.runs[2].gpus == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 1\nruns:\n  - {spek: c.yaml}\n", r"night.yaml:3:6: unknown key 'spek'"),
        ("version: 1\nruns: []\n", r"night.yaml:2:7: needs at least 1 entries"),
        ("version: 1\nrun: []\n", r"night.yaml:2:1: unknown key 'run'; did you mean 'runs'"),
        ("version: 2\nruns: [{spec: c.yaml}]\n", r"night.yaml:1:10: should be 1, not 2"),
        ("version: 1\nruns: [{spec: d.yaml}]\n", r"2:15: no such file, and no bundled exp"),
        ("version: 1\nruns: [{spec: c.yaml, gpus: 0}]\n", r"2:29: should be greater than"),
        (
            "version: 1\nseconds: .inf\nruns: [{spec: c.yaml}]\n",
            r"2:10: should be less than or equal to 1000000000",
        ),
        ("version: 1\nruns: [{spec: c.yaml, name: ../x}]\n", r"2:29: '../x' is not a name"),
        ("version: 1\nruns: [{spec: c.yaml}, {spec: c.yaml}]\n", r"another run is called '.*c'"),
        ("runs: yes\n", r"night.yaml:1:7: "),
        ("a: [\n", r"not YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, words):
    with pytest.raises(SpecError, match=words):
        load_campaign(write(tmp_path, text))


def test_the_example_in_the_documentation_is_read(tmp_path):
    page = (ROOT / "docs" / "campaigns.md").read_text()
    path = write(tmp_path, page.partition("```yaml\n")[2].partition("```")[0])
    for name in ("silu/cuda.yaml", "norms/rmsnorm.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(SPEC)
    made = load_campaign(path)
    assert [run.name for run in made.runs] == ["silu", "rmsnorm", "merge_attn_states_lse"]


def test_a_folder_stands_for_the_specs_in_it(tmp_path):
    write(tmp_path, "version: 1\nruns: []\n")
    (tmp_path / "template.yaml").write_text("source: x.cl\n")
    (tmp_path / "broken.yaml").write_text("kernel: [\n")
    assert [run.name for run in load_campaign(tmp_path).runs] == ["broken", "c"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match="empty has 0 specs"):
        load_campaign(tmp_path / "empty")
    with pytest.raises(SpecError, match="no such file"):
        load_campaign(tmp_path / "none.yaml")


def test_files_of_a_folder_whose_names_no_run_may_have_are_renamed_or_told(tmp_path):
    for name in ("my kernel.yaml", ".swap.yaml"):
        (tmp_path / name).write_text(SPEC)
    assert [run.name for run in load_campaign(tmp_path).runs] == ["my_kernel"]
    (tmp_path / "my_kernel.yml").write_text(SPEC)
    with pytest.raises(SpecError, match="both be called 'my_kernel': rename one"):
        load_campaign(tmp_path)
    (tmp_path / "my_kernel.yml").rename(tmp_path / "\udcff.yml")
    with pytest.raises(EnvironmentProblem, match="is not UTF-8 text: rename it"):
        load_campaign(tmp_path)
