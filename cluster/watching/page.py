"""The page of ``watch --web``: HTML made here, parts of it fetched again by a script of its own.

All text from runs is escaped by :mod:`tuner.report.html`; the script puts in what the server made.
"""

import time
from collections.abc import Iterator, Sequence
from html import escape

from cluster.watching.follower import RunPicture
from cluster.watching.rounds import RoundStories
from cluster.watching.workers import losses, worker_table
from tuner.engine.progress import duration
from tuner.report.convergence import figures
from tuner.report.document import Facts, Heading, Part, Table
from tuner.report.html import STYLE, parts_html

STYLESHEET = (
    STYLE
    + """
body { max-width: none; } main { display: grid; gap: 2rem 2.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
article { min-width: 0; } article th, article td { max-width: 16rem; overflow-wrap: anywhere; }
article th.n { white-space: normal; overflow-wrap: normal; max-width: 4.5rem; }
@media (max-width: 40rem) { article th, article td { max-width: 6.5rem; padding-right: .5rem; } }
article h2 { overflow-wrap: anywhere; }
.state { font-size: .875rem; font-weight: 600; padding: .1rem .5rem; border-radius: .25rem;
  background: var(--panel); color: var(--soft); }
.running, .finished { color: var(--c3); } .waiting, .interrupted { color: var(--c1); }
.unreadable, #lost { color: var(--c4); }
"""
)

SCRIPT = """"use strict";
const known = new Map();
async function refresh(part) {
  const headers = known.has(part) ? { "If-None-Match": known.get(part) } : {};
  const reply = await fetch(part.dataset.source, { headers, cache: "no-store" });
  const text = await reply.text();
  if (reply.status === 304) return;
  if (!reply.ok) throw new Error(String(reply.status));
  const place = (details) => details.querySelector("summary").textContent;
  const open = new Set([...part.querySelectorAll("details[open]")].map(place));
  part.innerHTML = text;
  for (const details of part.querySelectorAll("details")) details.open = open.has(place(details));
  known.set(part, reply.headers.get("ETag"));
}
async function look() {
  if (!document.hidden) {
    const parts = [...document.querySelectorAll("[data-source]")];
    const ends = await Promise.allSettled(parts.map(refresh));
    document.getElementById("lost").hidden = !ends.some((end) => end.status === "rejected");
  }
  setTimeout(look, 2000);
}
look();
"""
"""Fetches each part of the page every two seconds; folds stay as the reader left them."""


def page(names: Sequence[str]) -> str:
    """The page of runs with these names; the parts are fetched by the script."""
    articles = "".join(
        f'<article><div data-source="runs/{number}"><h2>{escape(name)}</h2></div>'
        f'<div data-source="runs/{number}/rounds"></div></article>\n'
        for number, name in enumerate(names)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<title>kernelwright watch</title>\n<link rel="icon" href="data:,">\n'
        '<link rel="stylesheet" href="style.css">\n'
        '<script src="watch.js" defer></script>\n</head>\n<body>\n<h1>kernelwright watch</h1>\n'
        '<p id="lost" hidden>No answer: the command has ended, or the connection is lost.</p>\n'
        "<noscript><p>This page needs its script to show how the runs go on.</p></noscript>\n"
        f"<main>\n{articles}</main>\n</body>\n</html>\n"
    )


def run_html(picture: RunPicture, number: int, *, has_report: bool) -> str:
    """A run's part of the page that changes all the time."""
    link = f'<p><a href="runs/{number}/report.html">Report</a></p>\n' if has_report else ""
    return (
        f"<h2>{escape(picture.name)} "
        f'<span class="state {picture.state}">{picture.state}</span></h2>\n'
        f"{link}{parts_html(tuple(_run(picture)))}"
    )


def rounds_html(picture: RunPicture, stories: RoundStories) -> str:
    """A run's rounds; empty without agents."""
    return parts_html(stories.parts(picture))


def _run(picture: RunPicture) -> Iterator[Part]:
    if picture.problem:
        yield picture.problem
        return
    place = f"round {picture.round} of {picture.rounds}: " if picture.round else ""
    facts = [
        ("kernel", f"{picture.kernel} on {picture.device}" if picture.device else picture.kernel),
        ("doing", f"{place}{picture.words}"),
        ("trials", f"{picture.tried}, {picture.rejected} rejected; {duration(picture.seconds)}"),
    ]
    if picture.writer:
        facts.append(("written by", picture.writer))
    if picture.speedup is not None:
        best = f"{picture.speedup:.3f}× with {picture.configuration}"
        facts.append(("best of the search", f"{best} (not confirmed)"))
    if picture.verdict:
        facts.append(("result", picture.verdict))
    calls = picture.counts.calls.total()
    if calls:
        tokens = picture.counts.tokens.total()
        facts.append(
            ("models", f"{calls} calls, {tokens} tokens, {picture.counts.cost_usd:.2f} USD")
        )
    yield Facts(pairs=tuple(facts))
    yield from figures(picture.climbs)[:2]
    workers = worker_table(picture, time.time())
    if workers.rows:
        yield Heading(text="Workers")
        yield workers
    if lost := losses(picture.counts):
        yield Heading(text="Lost")
        yield Table(head=("worker", "what", "why", ""), rows=tuple(lost))
