"""`parley serve`: a node that listens until it is asked to end."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import anyio

from parley._node.cli.ending import longest_end
from parley._node.cli.options import (
    NodeOptions,
)
from parley._node.cli.output import Output
from parley._node.cli.run import ending_signals, make_node, run, say_closed
from parley._node.cli.serve.announcing import announced
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.builtin import CLOCK_INTERVAL, offer_builtin_calls, offer_clock, tick
from parley._node.cli.serve.bus import (
    BusRights,
    announce_bus,
    offered,
    require_bus,
)
from parley._node.cli.serve.console import watched
from parley._node.cli.serve.federation import (
    announce_federation,
    federated,
    told,
)
from parley._node.cli.serve.gateways import Spoken, joined
from parley._node.cli.serve.journal import (
    announce_journal,
    journal_told,
    watch_journal,
)
from parley._node.cli.serve.metrics import metered
from parley._node.cli.serve.reloading import Reloader, RunningServer
from parley._node.cli.serve.supervisor import Supervisor
from parley._node.logs import one_line
from parley._node.node import Node
from parley._node.settings import Settings, load_settings
from parley._node.transport.backend import keep_freed_memory
from parley._node.trust.policies import TrustPolicy


def serve(
    options: NodeOptions,
    listen: list[str] | None,
    config: Path | None,
    forward: list[str] | None,
    announce: bool | None,
    announce_name: str | None,
    metrics: str | None,
    simproto: list[str] | None,
    named: list[str] | None,
    named_flavour: str | None,
    relay: list[str] | None,
    bridge: str | None,
    allow_insecure: bool,
    journal: Path | None,
    auditor: list[str] | None,
    journal_fsync: str | None,
    journal_on_failure: str | None,
    bus: str | None,
    bus_allow: list[str] | None,
    link: list[str] | None,
    member: list[str] | None,
    carry: list[str] | None,
    export: list[str] | None,
    follow: list[str] | None,
    accounts: str | None,
    console: str | None,
    access_log: bool | None,
    log_requests: bool | None,
) -> None:
    """Listen, answer parley.echo and parley.info, publish parley.clock, until SIGINT or SIGTERM.

    SIGHUP has the settings read again.
    """

    def read() -> Settings:
        return load_settings(
            config,
            options=serve_told(
                listen, announce, announce_name, console, metrics, access_log, log_requests
            )
            | journal_told(journal, auditor, journal_fsync, journal_on_failure)
            | told(link, member, carry, export, follow, accounts)
            | {
                "serve.forward": ("--forward", forward or None),
                "simproto.listen": ("--simproto", simproto or None),
                "named.listen": ("--named", named or None),
                "named.flavour": ("--named-flavour", named_flavour),
                "relay.listen": ("--relay", relay or None),
                "relay.bridge": ("--bridge", bridge),
                "dialects.allow_insecure": ("--allow-insecure", allow_insecure or None),
                "bus.url": ("--bus", bus),
                "bus.allow": ("--bus-allow", bus_allow or None),
            },
        )

    serve_by(read, options)


def serve_by(
    read: Callable[[], Settings], options: NodeOptions, application: Application | None = None
) -> None:
    """Be a server until a signal comes, by the settings that `read` reads, now and at each SIGHUP;
    raises as `run`, and as `read` does now."""
    settings = read()
    reloader = Reloader(read, options, settings)
    # The settings' trust is for incoming peers; the options decide about dialled ones.
    command = partial(_serving, settings, options.unattended_trust, reloader, application)
    keep_freed_memory()
    run(
        options.over(settings),
        command,
        access_log=settings.serve.access_log,
        log_requests=settings.serve.log_requests,
        serves=True,
        hangup=reloader.hangup,
    )


async def _serving(
    settings: Settings,
    dialling_trust: Callable[[str], TrustPolicy],
    reloader: Reloader,
    application: Application | None,
    options: NodeOptions,
    out: Output,
) -> None:
    """Be a node as the settings have it until a signal comes: one that offers what an application
    does, or else the calls and the topic of `parley serve`."""
    kept, clock, supervisor = settings.journal.open(), None, Supervisor()
    own = None if application is None else application.own_node(options, kept)
    node = own or make_node(options, options.listening_trust(), kept)
    # Around the node, so that it can be asked while it drains.
    async with metered(node, settings.serve, out), node:
        if settings.serve.roles is not None:
            node.roles.load(settings.serve.roles)
        require_bus(settings.bus)
        rights = BusRights(settings.bus, node.roles)
        if application is None:
            offer_builtin_calls(node)
            clock = offer_clock(node)
        async with (
            nullcontext() if application is None else application.offered(node),
            joined(node, settings, dialling_trust) as spoken,
            offered(node, settings.bus, rights),
            federated(node, settings.federation) as federation,
        ):
            # Before anything is printed: whoever reads `ready` may send a signal at once. It
            # ends before the node drains, so that a second signal does not wait for that.
            # Gateways drain first, then the node does.
            drains = 2 if settings.simproto.listen or settings.named.listen else 1
            with ending_signals(longest_end(node.config.drain_timeout, drains)) as signals:
                addresses = [await node.listen(address) for address in settings.serve.listen]
                await spoken.listen(settings)
                if kept is not None:
                    announce_journal(out, kept)
                announce_bus(out, settings.bus)
                announce_federation(out, settings.federation)
                server = federation is not None
                async with (
                    announced(node, settings.serve, out, server=server),
                    watched(node, settings, federation, out),
                    reloader.serving(
                        RunningServer(node, federation, rights, supervisor, out, application)
                    ),
                ):
                    _announce(out, node, addresses, spoken, announced=settings.serve.announce)
                    supervisor.ready(f"listening on {', '.join(addresses)}")
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(supervisor.keep_alive)
                        if clock is not None:
                            tasks.start_soon(tick, clock, CLOCK_INTERVAL)
                        if kept is not None:
                            tasks.start_soon(watch_journal, out, kept)
                        name = (await anext(signals)).name
                        supervisor.stopping()
                        tasks.cancel_scope.cancel()
            counts = spoken.relay_counts()
    say_closed(out, name, **counts)


def serve_told(
    listen: list[str] | None,
    announce: bool | None,
    announce_name: str | None,
    console: str | None,
    metrics: str | None,
    access_log: bool | None,
    log_requests: bool | None,
) -> dict[str, tuple[str, object]]:
    """Return the options that set the table `[serve]`, for `load_settings`."""
    return {
        "serve.listen": ("--listen", listen or None),
        "serve.announce": ("--announce", announce),
        "serve.announce_name": ("--announce-name", announce_name),
        "serve.console": ("--console", console),
        "serve.metrics": ("--metrics", metrics),
        "serve.access_log": ("--access-log", access_log),
        "serve.log_requests": ("--log-requests", log_requests),
    }


def _announce(
    out: Output, node: Node, addresses: list[str], spoken: Spoken, *, announced: bool
) -> None:
    for address in addresses:
        out.say(f"listening on {address}")
    for address in spoken.simproto.addresses:
        out.say(f"speaking SimProto on {address}")
    for address in spoken.named.addresses:
        out.say(f"speaking named events ({spoken.named.flavour}) on {address}")
    for address in spoken.relay.addresses:
        out.say(f"relaying on {address}")
    for forward in spoken.forwards:
        out.say(f"forwarding {one_line(forward.topic.name)} of {forward.address}")
    out.event(
        "ready",
        node_id=str(node.node_id),
        addresses=addresses,
        simproto=spoken.simproto.addresses,
        named=spoken.named.addresses,
        relay=spoken.relay.addresses,
        announced=announced,
    )
