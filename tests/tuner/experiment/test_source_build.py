"""Builds of a source that are malformed: the error names the file and what is wrong."""

import json

import pytest

from tuner.errors import SpecError
from tuner.experiment.headers import find_headers, folders_for
from tuner.experiment.source_build import source_build

LONG = "a" * 5000


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "k.cu"
    path.write_text("__global__ void k() {}\n")
    return path


def test_commands_that_are_nested_too_deeply_are_refused(source, tmp_path):
    commands = tmp_path / "compile_commands.json"
    commands.write_text("[" * 100_000)
    with pytest.raises(SpecError, match=r"compile_commands\.json: not the compile_commands"):
        source_build(source, tmp_path, commands=commands)


def test_an_include_folder_with_too_long_a_name_is_refused(source, tmp_path):
    commands = tmp_path / "compile_commands.json"
    entry = {"directory": str(tmp_path), "file": "k.cu", "arguments": ["nvcc", f"-I{LONG}"]}
    commands.write_text(json.dumps([entry]))
    with pytest.raises(SpecError, match=r"include folder '.{1,100}' cannot be read \(File name"):
        source_build(source, tmp_path, commands=commands)


def test_a_header_with_too_long_a_name_is_refused_with_its_line(source):
    text = f'\n#include "{LONG}"\n'
    assert folders_for(source, text) == ()
    with pytest.raises(ValueError, match=r"k\.cu:2 includes 'a{100}', which cannot be read"):
        find_headers(source, text, [])
