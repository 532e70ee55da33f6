"""Name, options and help of the command that runs campaigns.

Imports nothing heavy, as :mod:`cluster.cli.main`, whose command it is.
"""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.lazy_command import command
from cluster.cli.options import (
    AllowEndpoint,
    DeviceOption,
    Fleet,
    Json,
    output_option,
    seconds_option,
)

campaign_command = typer.Typer()


@command(campaign_command, "campaign.campaign")
def campaign(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="SPECS",
            help="A campaign's YAML file, a folder of specs, or the folder of a campaign that was "
            "begun, which is continued.",
        ),
    ],
    *,
    fleet: Fleet = None,
    output: Annotated[
        Path | None, output_option("The folder to create, instead of campaigns/NAME-…")
    ] = None,
    seconds: Annotated[
        float | None, seconds_option("Time of all runs from now on, in place of the file's.")
    ] = None,
    device: DeviceOption = None,
    allow_endpoint: AllowEndpoint = None,
    as_json: Json = False,
) -> None:
    """Tune many kernels with one budget and one report; a failing run does not end the others."""
