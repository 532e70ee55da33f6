"""The notebook in the documents: it uses the public API alone, and its cells run in order."""

import ast
import asyncio
import json
import linecache
from pathlib import Path

import pytest

import kernelwright

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
SOURCES = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def test_its_cells_import_nothing_but_the_public_api() -> None:
    nodes = [node for source in SOURCES for node in ast.walk(ast.parse(source))]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(one) for one in imports} == {
        "import tempfile",
        "from pathlib import Path",
        "import numpy as np",
        "import kernelwright as kw",
    }
    used = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "kw"
    }
    assert used == {"write_spec", "tune", "load"}
    assert used < set(kernelwright.__all__)


def test_it_shows_the_outputs_of_one_run_in_order() -> None:
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert kinds == {"execute_result", "stream"}
    (table,) = (
        output["data"]["text/html"]
        for cell in code
        for output in cell["outputs"]
        if "text/html" in output.get("data", {})
    )
    assert "faster with" in "".join(table)


@pytest.mark.slow
def test_its_cells_run_inside_an_event_loop(capsys: pytest.CaptureFixture[str]) -> None:
    """As in a notebook, whose cells run in its kernel's loop."""
    names: dict[str, object] = {"__name__": "__main__"}

    async def kernel() -> None:
        for number, source in enumerate(SOURCES, start=1):
            name = f"<cell {number}>"
            # As IPython does, so that the source of a function is found.
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            exec(compile(source, name, "exec"), names)

    asyncio.run(kernel())
    result = names["result"]
    assert isinstance(result, kernelwright.Result)
    assert result.outcome in ("improved", "no_gain")
    assert "scale_rows on" in capsys.readouterr().out
