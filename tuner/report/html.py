"""A report as one HTML page that needs nothing else: no network, no script.

All text is escaped, and a policy in the page forbids loading anything. Light and dark follow the
reader's system. Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from collections.abc import Iterator, Sequence
from html import escape

from tuner.report.document import Document, Facts, Heading, Listing, Part, Section, Table
from tuner.report.svg import svg

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #57606a; --edge: #d8dee4;
  --panel: #f6f8fa; --c0: #0072b2; --c1: #e69f00; --c2: #8a9199; --c3: #009e73; --c4: #d55e00;
  --c5: #cc79a7; --plus: #dafbe1; --minus: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e6e9ed; --soft: #9aa5b1;
  --edge: #333b45; --panel: #1c2229; --c0: #4ba3dc; --c1: #f0b83f; --c2: #8b949e; --c3: #2fc295;
  --c4: #f0803c; --c5: #dd9cc0; --plus: #12361f; --minus: #45181a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--edge); }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .5rem 0; max-width: 46rem; }
nav { margin: 1rem 0; line-height: 1.9; } nav a { margin-right: 1rem; white-space: nowrap; }
a { color: var(--c0); }
.subtitle, figcaption, .muted { color: var(--soft); }
.verdict { font-size: 1.1rem; padding: .75rem 1rem; background: var(--panel);
  border-left: 4px solid var(--c0); max-width: none; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .875rem; width: max-content; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid var(--edge); max-width: 26rem; }
th { color: var(--soft); font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .2rem 1rem;
  margin: .75rem 0; } dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1.5rem 2rem; margin: 1rem 0; align-items: start; }
figure { margin: 0; max-width: 40rem; min-width: 0; }
figcaption { font-size: .875rem; } figcaption b { color: var(--ink); display: block; }
pre { background: var(--panel); padding: .75rem; overflow-x: auto; font-size: .8125rem;
  line-height: 1.45; margin: .5rem 0; } code, pre { font-family: ui-monospace, monospace; }
pre ins, pre del { display: block; text-decoration: none; } pre ins { background: var(--plus); }
pre del { background: var(--minus); } pre i { display: block; color: var(--soft); }
summary { cursor: pointer; color: var(--c0); }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); paint-order: stroke;
  stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; }
svg .cell { stroke: none; } svg .muted { fill: var(--soft); }
svg .value { font-variant-numeric: tabular-nums; }
svg path { fill: none; } svg .rule { stroke: var(--edge); }
svg .axis { stroke: var(--soft); } svg .mark { stroke: var(--soft); stroke-dasharray: 1 3; }
svg .reference { stroke: var(--ink); stroke-dasharray: 4 3; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg .line { stroke-width: 2; } svg .none { fill: var(--panel); }
svg .dots { stroke-width: 4; stroke-linecap: round; stroke-opacity: .45; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); }
.c3 { fill: var(--c3); } .c4 { fill: var(--c4); } .c5 { fill: var(--c5); }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin: 0 0 .5rem; }
  table { font-size: .75rem; } th, td { max-width: 5.5rem; padding-right: .4rem; }
  th.n { white-space: normal; } td:nth-child(2):last-child { max-width: 16rem; } }
@media print { details > * { display: block; } nav { display: none; } }
"""
"""The style of a report's page, and of what else shows parts of a document."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(document: Document) -> str:
    """The whole page."""
    title = escape(document.title)
    links = "".join(
        f'<a href="#{_anchor(section)}">{escape(section.title)}</a> '
        for section in document.sections
    )
    body = "".join(_section(section) for section in document.sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="subtitle">{escape(document.subtitle)}</p>\n'
        f'<p class="verdict">{escape(document.verdict)}</p>\n<nav>{links}</nav>\n'
        f"<main>\n{body}</main>\n</body>\n</html>\n"
    )


def plain_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without styles, as notebooks show it."""

    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    body = row(head, "th") + "".join(row(cells, "td") for cells in rows)
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"


def _anchor(section: Section) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in section.title.lower()).split())


def _section(section: Section) -> str:
    parts = parts_html(section.parts)
    return (
        f'<section id="{_anchor(section)}">\n<h2>{escape(section.title)}</h2>\n{parts}</section>\n'
    )


def parts_html(parts: tuple[Part, ...]) -> str:
    """Parts of a document, for a place in a page that has :data:`STYLE`."""
    return "".join(_parts(parts))


def _parts(parts: tuple[Part, ...]) -> Iterator[str]:
    """The parts; figures in a row stand side by side where the page is wide."""
    figures: list[str] = []
    for part in parts:
        text = _text_part(part)
        if text is None and not isinstance(part, str | Heading | Facts | Table | Listing):
            caption = f"<b>{escape(part.title)}</b>{escape(part.caption)}"
            figures.append(f"<figure>{svg(part)}<figcaption>{caption}</figcaption></figure>\n")
            continue
        yield from _side_by_side(figures)
        yield text or ""
    yield from _side_by_side(figures)


def _side_by_side(figures: list[str]) -> Iterator[str]:
    if figures:
        yield f'<div class="figures">\n{"".join(figures)}</div>\n'
        figures.clear()


def _text_part(part: Part) -> str | None:
    match part:
        case str():
            return f"<p>{escape(part)}</p>\n"
        case Heading(text=text):
            return f"<h3>{escape(text)}</h3>\n"
        case Facts(pairs=pairs):
            listed = (f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>\n" for term, text in pairs)
            return f"<dl>{''.join(listed)}</dl>\n"
        case Table():
            return _table(part)
        case Listing():
            return _listing(part)
        case _:
            return None


def _table(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        parts = []
        for column, text in enumerate(cells):
            style = ' class="n"' if column in table.numbers else ""
            parts.append(f"<{tag}{style}>{escape(text)}</{tag}>")
        return f"<tr>{''.join(parts)}</tr>\n"

    rows = "".join(row(cells, "td") for cells in table.rows)
    return (
        f'<div class="scroll"><table>\n<thead>{row(table.head, "th")}</thead>\n'
        f"<tbody>{rows}</tbody></table></div>\n"
    )


def _listing(listing: Listing) -> str:
    text = escape(listing.text)
    if listing.language == "diff":
        text = "".join(map(_diff_line, listing.text.splitlines()))
    block = f"<pre>{text}</pre>\n"
    if not listing.summary:
        return block
    return f"<details><summary>{escape(listing.summary)}</summary>{block}</details>\n"


def _diff_line(line: str) -> str:
    tag = {"+": "ins", "-": "del", "@": "i"}.get(line[:1])
    return f"<{tag}>{escape(line)}</{tag}>" if tag else f"{escape(line)}\n"
