"""The command line of ``kernelwright patterns``: names, options and help of its commands."""

from typing import Annotated

import typer

from cluster.cli.lazy_command import command

patterns_app = typer.Typer(
    help="Manage patterns: what winners leave for later runs.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
PatternName = Annotated[
    str, typer.Argument(metavar="NAME", help="A pattern's name, or its beginning.")
]


@command(patterns_app, "patterns.list_all", "list")
def patterns_list() -> None:
    """List all patterns, one per line."""


@command(patterns_app, "patterns.show", "show")
def patterns_show(name: PatternName) -> None:
    """Print one pattern as JSON."""


@command(patterns_app, "patterns.export", "export")
def patterns_export() -> None:
    """Print all patterns as one JSON list."""


@command(patterns_app, "patterns.delete", "delete")
def patterns_delete(name: PatternName) -> None:
    """Delete one pattern."""
