"""Figures drawn by matplotlib for papers: each as PNG and SVG.

Matplotlib is imported here alone, when a figure is drawn. Text in an SVG stays text.
"""

from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentProblem
from tuner.report.figure import Bars, Figure, Grid, Lines, Schedule

_COLOURS = ("#0072b2", "#e69f00", "#8a9199", "#009e73", "#d55e00", "#cc79a7")
"""Of Okabe and Ito, with a grey; the page has the same."""

_WIDTH = 5.5
"""Inches; a column and a half of a paper."""

_MOST_NAME, _MOST_LABEL = 24, 40
"""Characters that are shown of a worker's name and of a row's label; more leave no room to draw."""

_STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "kernelwright",
    "figure.constrained_layout.use": True,
}


def write_figures(figures: tuple[Figure, ...], folder: Path) -> list[Path]:
    """Write each figure as ``NAME.png`` (300 dots per inch) and ``NAME.svg``.

    Raises:
        EnvironmentProblem: matplotlib is not installed, or the folder cannot be written.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise EnvironmentProblem(
            "figures need matplotlib, which is not installed: pip install '.[report]' in a clone"
        ) from None
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(_STYLE):
            for figure in figures:
                drawn = _draw(Canvas(figsize=(_WIDTH, _height(figure))), figure)
                for ending in ("png", "svg"):
                    path = folder / f"{figure.name}.{ending}"
                    metadata = {"Date": None} if ending == "svg" else None
                    drawn.savefig(path, dpi=300, metadata=metadata)
                    written.append(path)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {folder}: {error.strerror}") from None
    return written


def _draw(canvas: Any, figure: Figure) -> Any:
    """An empty matplotlib figure, drawn on; pyplot and its backend stay as a notebook has them."""
    axes = canvas.subplots()
    match figure:
        case Bars():
            _bars(axes, figure)
        case Lines():
            _lines(axes, figure)
        case Grid():
            _grid(axes, figure)
        case Schedule():
            _schedule(axes, figure)
    handles, _ = axes.get_legend_handles_labels()
    if len(handles) > 1:
        canvas.legend(loc="outside upper left", ncols=2 if len(handles) > 3 else 3, frameon=False)
    return canvas


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _height(figure: Figure) -> float:
    match figure:
        case Bars(rows=rows):
            return 1.0 + 0.2 * sum(sum(bar is not None for bar in row.bars) + 0.6 for row in rows)
        case Lines():
            return 3.2
        case Grid(rows=rows):
            return 1.0 + 0.32 * len(rows)
        case Schedule(rows=rows):
            return 1.2 + 0.35 * len(rows)


def _bars(axes: Any, figure: Bars) -> None:
    y, places, labelled, end = 0.0, [], set(), figure.end
    for row in figure.rows:
        first = y
        for series, bar in enumerate(row.bars):
            if bar is None:
                continue
            name = figure.series[series]
            label = None if name in labelled else name
            labelled.add(name)
            axes.barh(y, bar.value, height=0.8, color=_COLOURS[series], label=label)
            if bar.low is not None and bar.high is not None:
                sides = [[bar.value - bar.low], [min(bar.high, end) - bar.value]]
                axes.errorbar(bar.value, y, xerr=sides, color="black", capsize=2, linewidth=1)
                if bar.high > end:
                    axes.plot(end, y, ">", color="black", markersize=4)
            axes.annotate(
                bar.text.partition(" [")[0],
                (max(bar.value, min(bar.high or 0.0, end)), y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
            y += 1
        places.append((first + y - 1) / 2)
        y += 0.6
    axes.set_yticks(places, [_cut(row.label, _MOST_LABEL) for row in figure.rows])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_xlabel(figure.axis)
    axes.tick_params(axis="y", length=0)
    _reference(axes.axvline, figure.reference)


def _lines(axes: Any, figure: Lines) -> None:
    for line, colour in zip(figure.lines, _COLOURS, strict=False):
        xs = [x for x, _ in line.points]
        ys = [max(y, figure.floor) for _, y in line.points]
        if line.style == "points":
            axes.plot(xs, ys, ".", color=colour, alpha=0.4, markersize=4, label=line.name)
        else:
            axes.step(xs, ys, where="post", color=colour, label=line.name)
    for x, label in figure.marks:
        axes.axvline(x, color="grey", linewidth=0.5, linestyle=":")
        axes.annotate(
            label,
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=7,
            color="grey",
        )
    _reference(axes.axhline, figure.reference)
    axes.set_xlim(left=0)
    axes.set_xlabel(figure.x_axis)
    axes.set_ylabel(figure.y_axis)


def _reference(draw: Any, reference: tuple[float, str] | None) -> None:
    if reference:
        draw(reference[0], color="black", linewidth=0.8, linestyle="--", label=reference[1])


def _grid(axes: Any, figure: Grid) -> None:
    nothing = float("nan")
    cells = [[nothing if cell is None else cell for cell in row] for row in figure.cells]
    known = [cell for row in figure.cells for cell in row if cell is not None]
    middle = (min(known) + max(known)) / 2
    image = axes.imshow(cells, cmap="cividis", aspect="auto")
    axes.figure.colorbar(image, label=figure.cell_axis)
    for y, row in enumerate(figure.cells):
        for x, cell in enumerate(row):
            if cell is not None:
                colour = "white" if cell < middle else "black"
                axes.text(x, y, f"{cell:.2f}", ha="center", va="center", color=colour, fontsize=7)
    axes.set_xticks(range(len(figure.columns)), figure.columns)
    axes.set_yticks(range(len(figure.rows)), figure.rows)
    axes.set_xlabel(figure.x_axis)
    axes.set_ylabel(figure.y_axis)


def _schedule(axes: Any, figure: Schedule) -> None:
    for kind, name in enumerate(figure.kinds):
        for row in range(len(figure.rows)):
            spans = [
                (one.began, one.ended - one.began)
                for one in figure.intervals
                if (one.kind, one.row) == (kind, row)
            ]
            label = None if row else name
            axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=_COLOURS[kind], label=label)
    axes.set_yticks(range(len(figure.rows)), [_cut(row, _MOST_NAME) for row in figure.rows])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(figure.axis)
