"""Who holds the GPUs of a Ray cluster, in words for people who wait for one.

Runs are known by the names of their benches' placement groups; other holders by what Ray's state
API says of their actors, if it answers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ray.util.placement_group import placement_group_table
from ray.util.state import list_actors

STATE_SECONDS = 3
"""How long Ray's state API, a server on the head node, may take to answer."""

_BENCH = re.compile(r"driver:(.+):[0-9a-f]{8}:[0-9a-f]{16}")


def gpu_holders(held: int) -> str:
    """The holders of so many GPUs, the largest first; empty if none are held."""
    try:
        actors = [
            vars(actor)
            for actor in list_actors(
                filters=[("state", "=", "ALIVE")], detail=True, timeout=STATE_SECONDS
            )
        ]
    except Exception:  # the API's server is down, or was never started
        actors = []
    return describe(placement_group_table().values(), actors, held)


def describe(
    groups: Iterable[Mapping[str, Any]], actors: Iterable[Mapping[str, Any]], held: int
) -> str:
    """As :func:`gpu_holders`, from what Ray tells of placement groups and actors."""
    found = Counter[str]()
    for group in groups:
        gpus = sum(bundle.get("GPU", 0) for bundle in group["bundles"].values())
        if gpus and group["state"] == "CREATED":
            run = _BENCH.fullmatch(group["name"])
            name = group["name"] or group["placement_group_id"]
            found[f"run {run[1]}" if run else f"placement group {name}"] += int(gpus)
    for actor in actors:
        gpus = (actor["required_resources"] or {}).get("GPU", 0)
        if gpus and not actor["placement_group_id"]:
            name = actor["name"] or actor["class_name"]
            found[f"actor {name} of job {actor['job_id']} (process {actor['pid']})"] += int(gpus)
    if (rest := held - found.total()) > 0:
        found["other Ray jobs"] += rest
    return ", ".join(f"{who} holds {count}" for who, count in found.most_common() if count)
