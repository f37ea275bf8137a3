"""`parley sub`: prints what a node publishes on a topic."""

import sys
from typing import Annotated

import typer

from node.cli.call import Address
from node.cli.lines import Pace
from node.cli.options import NodeOptions, takes_node_options
from node.cli.output import Output, show_value
from node.cli.run import dialled, run
from node.cli.values import given_value
from node.peer.subscription import Subscription


@takes_node_options
def sub(
    options: NodeOptions,
    address: Address,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to subscribe to.")],
    count: Annotated[
        int | None, typer.Option(min=1, help="End after this many notes; default: never.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Text for the publisher to decide on.")] = None,
    data_json: Annotated[str | None, typer.Option(help="The same, any value as JSON.")] = None,
) -> None:
    """Subscribe to a topic and print its notes, until the publisher ends it."""
    value = given_value(data, data_json, name="--data")

    async def subscribing(options: NodeOptions, out: Output) -> None:
        async with (
            dialled(options, out, address) as peer,
            peer.subscribe(topic, value) as subscription,
        ):
            out.event("subscribed", topic=topic, data=subscription.data)
            shown = await _show(subscription, out, count)
        out.done(
            notes=shown,
            lost=subscription.dropped,
            reason="count" if shown == count else "end",
        )

    run(options, subscribing, waits_on_files=True)


async def _show(subscription: Subscription, out: Output, count: int | None) -> int:
    """Print notes until `count` were shown, or to the end; returns how many."""
    shown = lost = 0
    pace = Pace(sys.stdout)
    async for note in subscription:
        if subscription.dropped > lost:
            out.event("lost", count=subscription.dropped - lost)
            out.remark(f"{subscription.dropped - lost} notes were lost: we did not keep up")
            lost = subscription.dropped
        shown += 1
        await pace.print(out.line(show_value(note), "note", number=shown, data=note))
        if shown == count:
            break
    return shown
