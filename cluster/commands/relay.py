"""``relay``: answers a mailbox through a language model, on a machine with a network."""

import asyncio
from pathlib import Path

import typer

from agents.llm.network import NetworkModel, NetworkSettings
from agents.llm.provider_settings import secret_values
from agents.llm.redaction import Redacting
from agents.llm.relay import Relay
from cluster.settings import take_keys

POLL_SECONDS = 2.0


def relay(
    directory: Path,
    *,
    models: list[str],
    once: bool,
    max_cost_usd: float,
    temperature: float | None,
    seed: int | None,
    base_url: str | None,
) -> None:
    """Answer the requests in the mailbox; without ``once``, until interrupted.

    Raises:
        SpecError: a model is unknown.
        EnvironmentProblem: the folder is no mailbox, or cannot be written; or a key is missing.
        ModelUnavailable: a request got no reply; it stays in the mailbox.
    """
    keys = take_keys()
    network = NetworkModel(
        models=models,
        keys=keys,
        settings=NetworkSettings(temperature=temperature, seed=seed, base_url=base_url),
    )
    model = Redacting(network, secret_values(keys))
    served = Relay(directory, model, max_cost_usd)
    asyncio.run(model.ready())
    asyncio.run(_serve(served, once=once))


async def _serve(served: Relay, *, once: bool) -> None:
    while True:
        while (answered := await served.answer_one()) is not None:
            request, reply = answered
            notes = "".join(f"; {note}" for note in reply.notes)
            typer.echo(
                f"{request.position}: {reply.usage.input_tokens} tokens read, "
                f"{reply.usage.output_tokens} written, {reply.cost_usd:.4f} USD{notes}"
            )
        if once:
            return
        await asyncio.sleep(POLL_SECONDS)
