"""Figures as SVG for a page: colours and fonts come from the page's style, light and dark.

Every figure is :data:`WIDTH` units wide, so that a narrow screen shows it with readable text.
"""

from collections.abc import Iterator, Sequence
from html import escape

from tuner.report.figure import Bar, Bars, Figure, Grid, Lines, Schedule, ticks

WIDTH = 480
_CHARACTER = 6.6
"""Width of a character of the page's 12-unit figure font, rounded up."""

_LINE = 17
_BAR = 13
_LEFT, _RIGHT = 6, 10


def svg(figure: Figure) -> str:
    """The figure as an SVG element, with its title for screen readers."""
    match figure:
        case Bars():
            height, parts = _bars(figure)
        case Lines():
            height, parts = _lines(figure)
        case Grid():
            height, parts = _grid(figure)
        case Schedule():
            height, parts = _schedule(figure)
    title = escape(figure.title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{title}">'
        f"{''.join(parts)}</svg>"
    )


def _bars(figure: Bars) -> tuple[float, list[str]]:
    bars = [bar for row in figure.rows for bar in row.bars if bar]
    beside = max((len(bar.text) for bar in bars), default=0) * _CHARACTER + 8
    most = figure.end * 1.02 or 1.0
    left, right = _LEFT, WIDTH - _RIGHT - beside
    scale = (right - left) / most
    parts: list[str] = []
    top, legend = _legend(figure.series, figure.reference and figure.reference[1])
    y = top
    for row in figure.rows:
        parts.append(_text(left, y + 12, _fitted(row.label, WIDTH - 2 * left), title=row.label))
        y += _LINE
        for number, bar in enumerate(row.bars):
            if bar:
                parts += _bar(bar, number, left, right, scale, y)
                y += _BAR + 2
        y += 6
    axis = [
        f'<path class="rule" d="M{left + tick * scale:.1f} {top:g}V{y:.1f}"/>'
        + _text(left + tick * scale, y + 13, _number(tick), "muted", "middle" if tick else "start")
        for tick in ticks(0, most)
    ]
    if figure.reference:
        x = left + figure.reference[0] * scale
        axis.append(f'<path class="reference" d="M{x:.1f} {top:g}V{y:.1f}"/>')
    parts.append(_text((left + right) / 2, y + 29, figure.axis, "muted", "middle"))
    return y + 36, [*legend, *axis, *parts]


def _bar(bar: Bar, series: int, left: float, right: float, scale: float, y: float) -> Iterator[str]:
    width = max(bar.value * scale, 0.5)
    yield f'<rect class="c{series}" x="{left}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}"/>'
    middle = y + _BAR / 2
    if bar.low is not None and bar.high is not None:
        low, high = left + bar.low * scale, min(left + bar.high * scale, right)
        ends = f"M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"
        yield f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}{ends}"/>'
    yield _text(WIDTH - _RIGHT, y + 11, bar.text, "value", "end")


def _lines(figure: Lines) -> tuple[float, list[str]]:
    points = [point for line in figure.lines for point in line.points]
    most_x = max((x for x, _ in points), default=1.0) or 1.0
    reference = [figure.reference[0]] if figure.reference else []
    most_y = max([y for _, y in points] + reference, default=1.0)
    low = min([figure.floor, *reference])
    low -= (most_y - low) * 0.05
    most_y += (most_y - low) * 0.05 or 1.0
    names = tuple(line.name for line in figure.lines)
    top, parts = _legend(names, figure.reference and figure.reference[1])
    top += 12.0 if figure.marks else 0.0
    bottom = top + 190.0
    left, right = 52.0, WIDTH - 14.0

    def place(x: float, y: float) -> tuple[float, float]:
        share = (max(y, low) - low) / (most_y - low)
        return left + x / most_x * (right - left), bottom - share * (bottom - top)

    for tick in ticks(low, most_y):
        y = place(0, tick)[1]
        parts.append(f'<path class="rule" d="M{left} {y:.1f}H{right}"/>')
        parts.append(_text(left - 6, y + 4, _number(tick), "muted", "end"))
    for tick in ticks(0, most_x):
        parts.append(_text(place(tick, low)[0], bottom + 14, _number(tick), "muted", "middle"))
    for number, (x, label) in enumerate(figure.marks):
        at = place(x, low)[0]
        parts.append(f'<path class="mark" d="M{at:.1f} {top}V{bottom}"/>')
        ends = [*(place(x, low)[0] for x, _ in figure.marks[number + 1 :]), right]
        room = ends[0] - at - 6
        if len(label) * _CHARACTER <= room:
            parts.append(_text(at, top - 4, label, "muted"))
    if figure.reference:
        y = place(0, figure.reference[0])[1]
        parts.append(f'<path class="reference" d="M{left} {y:.1f}H{right}"/>')
    for number, line in enumerate(figure.lines):
        placed = [place(x, y) for x, y in line.points]
        if line.style == "points":
            dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in placed)
            parts.append(f'<path class="dots s{number}" d="{dots}"/>')
        elif placed:
            (x, y), rest = placed[0], placed[1:]
            path = f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)
            parts.append(f'<path class="line s{number}" d="{path}H{right:.1f}"/>')
    parts.append(f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>')
    parts.append(_text((left + right) / 2, bottom + 31, figure.x_axis, "muted", "middle"))
    parts.append(_turned((top + bottom) / 2, figure.y_axis))
    return bottom + 38, parts


def _grid(figure: Grid) -> tuple[float, list[str]]:
    left = 26 + max(map(len, figure.rows)) * _CHARACTER
    width = (WIDTH - _RIGHT - left) / len(figure.columns)
    height = 26
    known = [cell for row in figure.cells for cell in row if cell is not None]
    low, high = min(known), max(known)
    parts = [
        _text(
            left + (x + 0.5) * width,
            13,
            _fitted(name, width - 2),
            "muted",
            "middle",
            title=name,
        )
        for x, name in enumerate(figure.columns)
    ]
    for y, (name, row) in enumerate(zip(figure.rows, figure.cells, strict=True)):
        top = 20 + y * height
        parts.append(_text(left - 6, top + 17, name, "muted", "end"))
        for x, cell in enumerate(row):
            place = f'x="{left + x * width:.1f}" y="{top}" width="{width - 2:.1f}"'
            if cell is None:
                parts.append(f'<rect class="none" {place} height="{height - 2}"/>')
                continue
            shade = (cell - low) / (high - low) if high > low else 1.0
            parts.append(
                f'<rect class="c0" {place} height="{height - 2}" '
                f'fill-opacity="{0.1 + 0.5 * shade:.2f}"/>'
            )
            parts.append(_text(left + (x + 0.5) * width, top + 17, f"{cell:.2f}", "cell", "middle"))
    bottom = 20 + len(figure.rows) * height
    parts.append(_text((left + WIDTH) / 2, bottom + 16, figure.x_axis, "muted", "middle"))
    parts.append(_turned((20 + bottom) / 2, figure.y_axis))
    return bottom + 24, parts


def _schedule(figure: Schedule) -> tuple[float, list[str]]:
    most = max((one.ended for one in figure.intervals), default=1.0) or 1.0
    top, parts = _legend(figure.kinds, None)
    left, right, height = _LEFT, WIDTH - _RIGHT, 12
    scale = (right - left) / most
    places = {}
    y = top
    for number, name in enumerate(figure.rows):
        parts.append(_text(left, y + 11, _fitted(name, right - left), "muted", title=name))
        places[number] = y + 15
        y += 15 + height + 6
    for tick in ticks(0, most):
        x = left + tick * scale
        parts.append(f'<path class="rule" d="M{x:.1f} {top}V{y}"/>')
        parts.append(_text(x, y + 13, _number(tick), "muted", "middle" if tick else "start"))
    for one in figure.intervals:
        width = max((one.ended - one.began) * scale, 0.4)
        parts.append(
            f'<rect class="c{one.kind}" x="{left + one.began * scale:.1f}" '
            f'y="{places[one.row]}" width="{width:.1f}" height="{height}"/>'
        )
    parts.append(_text((left + right) / 2, y + 29, figure.axis, "muted", "middle"))
    return y + 36, parts


def _legend(names: Sequence[str], reference: str | None) -> tuple[float, list[str]]:
    """The y below the legend, and its parts; a single series without reference needs none."""
    entries = [(f"c{number}", name) for number, name in enumerate(names)]
    if reference:
        entries.append(("reference", reference))
    if len(entries) < 2:
        return 4.0, []
    parts, x, y = [], float(_LEFT), 4.0
    for style, name in entries:
        width = 18 + len(name) * _CHARACTER + 12
        if x > _LEFT and x + width > WIDTH:
            x, y = float(_LEFT), y + _LINE
        if style == "reference":
            parts.append(f'<path class="reference" d="M{x:.1f} {y + 6:.1f}h12"/>')
        else:
            parts.append(f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="12" height="12"/>')
        parts.append(_text(x + 18, y + 11, name))
        x += width
    return y + _LINE + 5, parts


def _text(
    x: float, y: float, text: str, style: str = "", anchor: str = "start", title: str = ""
) -> str:
    """A text; the whole ``title`` is shown on hovering where ``text`` is cut."""
    whole = f"<title>{escape(title)}</title>" if title and title != text else ""
    kind = f' class="{style}"' if style else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}"{side}>{whole}{escape(text)}</text>'


def _turned(y: float, text: str) -> str:
    return (
        f'<text class="muted" text-anchor="middle" '
        f'transform="translate(12.0 {y:.1f}) rotate(-90)">{escape(text)}</text>'
    )


def _fitted(text: str, width: float) -> str:
    most = max(1, int(width / _CHARACTER))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _number(value: float) -> str:
    return f"{value or 0.0:.6g}"
