"""`parley serve` and `parley run`: a node that runs until a signal."""

import os
import platform
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from parley._lbm.codec import Value
from parley._node import VERSION
from parley._node.apps.pairing.slots import offer_code_calls
from parley._node.bus.address import without_password
from parley._node.cli.bus.connection import require_offerable
from parley._node.cli.options import GivenSettings, NodeOptions
from parley._node.cli.output import Output, pluralise
from parley._node.cli.run import make_node, report_closed, require_other_node, run_server
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.bus_rights import BusRights, require_bus
from parley._node.cli.serve.reload import Reloader, RunningServer
from parley._node.cli.serve.systemd import Supervisor
from parley._node.cli.signals import exit_signals, longest_shutdown
from parley._node.discovery.discovery import announce
from parley._node.errors import ConfigError
from parley._node.gateways.forward import Forward
from parley._node.gateways.named import NamedGateway
from parley._node.gateways.relay.bridge import Bridge
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.gateway import SimProtoGateway
from parley._node.handlers.topic import Topic
from parley._node.journal.journal import Journal
from parley._node.logs import needs_extra, one_line
from parley._node.messaging.payloads import Payload
from parley._node.node import Node
from parley._node.remote.requests import Call, NamedEvent
from parley._node.server.calls import offer_federation_calls
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings, ServeSettings, Settings
from parley._node.settings.tables import BusSettings, parse_forward
from parley._node.transport.backend import keep_freed_memory
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.policies import TrustPolicy, known_peers_of

CLOCK_TOPIC: Final = "parley.clock"
CLOCK_INTERVAL: Final = 1.0  # seconds

# If a program has imported this module, it reads metrics through OpenTelemetry's API.
_OPENTELEMETRY: Final = "opentelemetry.metrics"


def serve(options: NodeOptions, config: Path | None, settings: GivenSettings) -> None:
    _run(options, partial(options.load, config, os.environ, given=settings))


def run_application(
    options: NodeOptions,
    target: str,
    config: Path | None,
    app_dir: Path,
    reload: bool,
    reload_dir: list[Path] | None,
    offers_topics: bool,
    settings: GivenSettings,
) -> None:
    if reload:
        from parley._node.cli.serve.autoreload import keep_running

        keep_running(options, reload_dir or [app_dir], [config] if config else [])
        return
    application = Application(target, app_dir, offers_topics=offers_topics)
    _run(options, partial(options.load, config, os.environ, given=settings), application)


def _run(
    options: NodeOptions, load: Callable[[], Settings], application: Application | None = None
) -> None:
    """Run a server until a signal. `load` returns the settings, now and at each SIGHUP."""
    settings = load()
    reloader = Reloader(load, options, settings)
    # The trust policy of the settings is for incoming peers; --trust is for dialled ones.
    command = partial(_serve, settings, options.unattended_trust, reloader, application)
    keep_freed_memory()
    run_server(options.with_settings(settings), command, settings.serve, reloader.hangup)


async def _serve(
    settings: Settings,
    dialling_trust: Callable[[str], TrustPolicy],
    reloader: Reloader,
    application: Application | None,
    options: NodeOptions,
    out: Output,
) -> None:
    """Open everything in the settings, from the node to the console, and wait for a signal.

    Everything is closed in the opposite order.
    """
    journal, supervisor, clock = settings.journal.open(), Supervisor(), None
    own = None if application is None else application.own_node(options, journal)
    node = own or make_node(options, options.listening_trust(), journal)
    async with AsyncExitStack() as stack:
        # Before the node, so that metrics can be read while the node drains.
        await serve_metrics(stack, node, settings.serve, out)
        await stack.enter_async_context(node)
        if settings.serve.roles is not None:
            node.roles.load(settings.serve.roles)
        require_bus(settings.bus)
        rights = BusRights(settings.bus, node.roles)
        node.handlers.named_ids.append(rights.names)
        if application is None:
            offer_builtin_calls(node)
            clock = offer_clock(node)
        else:
            await stack.enter_async_context(application.running(node))
        gateways = await _open_gateways(stack, node, settings, dialling_trust)
        if settings.bus.url is not None:
            require_offerable(settings.bus.url)
            await stack.enter_async_context(node.bus(settings.bus.url, allow=rights.allow))
        federation = await _open_federation(stack, node, settings.federation)
        # Before anything is printed, because a reader of `ready` can send a signal immediately. It
        # ends before the node drains, so that a second signal doesn't wait for that. Gateways drain
        # first, and then the node.
        drains = 2 if gateways.simproto or gateways.named else 1
        shutdown = longest_shutdown(node.config.drain_timeout, drains)
        signals = stack.enter_context(exit_signals(shutdown))
        addresses = [await node.listen(address) for address in settings.serve.listen]
        await gateways.listen(settings)
        if journal is not None:
            _report_journal(out, journal)
        _report_bus(out, settings.bus)
        _report_federation(out, settings.federation)
        if settings.serve.announce:
            name, server = settings.serve.announce_name, federation is not None
            await stack.enter_async_context(announce(node, name=name, server=server))
            out.print("announced on the local network")
        await _serve_console(stack, node, settings, federation, out)
        running = RunningServer(node, federation, rights, supervisor, out, application)
        stack.enter_context(reloader.reloads(running))
        _report_ready(out, node, addresses, gateways, announced=settings.serve.announce)
        supervisor.ready(f"listening on {', '.join(addresses)}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.keep_alive)
            if clock is not None:
                tasks.start_soon(tick, clock, CLOCK_INTERVAL)
            if journal is not None:
                tasks.start_soon(watch_journal, out, journal)
            signal_name = (await anext(signals)).name
            supervisor.stopping()
            tasks.cancel_scope.cancel()
        counts = gateways.relay_counts()
    report_closed(out, signal_name, **counts)


# Calls that every `parley serve` offers.


def offer_builtin_calls(node: Node) -> None:
    """Offer `parley.echo` as a call and a named event, `parley.info` and `parley.topics`."""
    node.offer_topics()

    @node.on_call("parley.echo")
    async def echo(call: Call) -> Value:
        """Returns the data of the call."""
        return call.data

    @node.on("parley.echo")
    async def echo_event(event: NamedEvent) -> Payload:
        """Replies with the payload of the event."""
        return event.payload  # unread: raw bytes and tandem payloads have no format

    @node.on_call("parley.info")
    async def info(call: Call) -> dict[str, Value]:
        """Describes this node, and the caller as this node sees it."""
        caller, suite = call.peer.node_id, call.peer.suite
        return {
            "name": "parley",
            "version": VERSION,
            "python": platform.python_version(),
            "node_id": str(node.node_id),
            "role": node.config.role,
            "caller": str(caller) if caller else None,
            "encrypted": call.peer.encrypted,
            "suite": dict(suite.names()) if suite else None,
            "peers": len(node.peers),
        }


def offer_clock(node: Node) -> Topic:
    """Return the topic of the clock; `tick` publishes its notes."""
    # Old times are useless, so a slow subscriber loses notes, not its subscription.
    return node.topic(CLOCK_TOPIC, slow="drop-oldest", patience=0)


async def tick(topic: Topic, interval: float) -> None:
    """Publish `{"time": UTC in ISO 8601, "count": from 1}` every `interval` seconds."""
    start, ticks, count = anyio.current_time(), 0, 0
    while True:
        ticks = max(ticks, int((anyio.current_time() - start) / interval)) + 1
        await anyio.sleep_until(start + ticks * interval)
        count += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await topic.publish({"time": now, "count": count})


# Gateways, and topics of other nodes.


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateways with an address in the settings, and the topics forwarded from other nodes."""

    simproto: SimProtoGateway | None
    named: NamedGateway | None
    relay: Relay | None
    forwards: tuple[Forward, ...]

    async def listen(self, settings: Settings) -> None:
        """Listen for all dialects.

        Raises:
            InsecureAddressError: others can reach an address, and that is not allowed.
            UnreachableError: an address can't be bound.
        """
        for gateway, addresses in (
            (self.simproto, settings.simproto.listen),
            (self.named, settings.named.listen),
            (self.relay, settings.relay.listen),
        ):
            if gateway is not None:
                for address in addresses:
                    allow_insecure = settings.dialects.allow_insecure
                    await gateway.listen(address, allow_insecure=allow_insecure)

    def relay_counts(self) -> dict[str, int]:
        """Return how many clients and messages the relay dropped; empty without a relay."""
        if self.relay is None:
            return {}
        names = ("dropped", "undeliverable", "turned_away")
        return {name: getattr(self.relay, name) for name in names}


async def _open_gateways(
    stack: AsyncExitStack,
    node: Node,
    settings: Settings,
    dialling_trust: Callable[[str], TrustPolicy],
) -> Gateways:
    """Create the gateways and forwarded topics. The gateways don't listen yet.

    Raises:
        ConfigError: a topic can't be bridged or forwarded.
    """
    named, dialects = settings.named, settings.dialects
    limits, values = dialects.limits, dialects.values
    gateways = Gateways(
        SimProtoGateway(node, limits=limits, values=values) if settings.simproto.listen else None,
        NamedGateway(node, flavour=named.flavour, format=named.format, limits=limits)
        if named.listen
        else None,
        Relay(limits=limits, feedback=settings.relay.feedback) if settings.relay.listen else None,
        _forwards(node, settings.serve.forward, dialling_trust),
    )
    for gateway in (gateways.simproto, gateways.named, gateways.relay):
        if gateway is not None:
            await stack.enter_async_context(gateway)
    if settings.relay.bridge is not None:
        await stack.enter_async_context(_bridge(node, gateways.relay, settings))
    for forward in gateways.forwards:
        await stack.enter_async_context(forward)
    return gateways


def _bridge(node: Node, relay: Relay | None, settings: Settings) -> Bridge:
    """Bridge the relay and a topic of the node, which also accepts calls of that name."""
    name = settings.relay.bridge
    if not name or relay is None:
        raise ConfigError(
            f"cannot bridge the topic '{name}': it is empty, or no relay listens; give --relay ADDR"
        )
    topic = node.topics.get(name) or node.topic(name)

    @node.on_call(name)
    async def publish(call: Call) -> None:
        """Publishes the data of the call."""
        await topic.publish(call.data)

    return Bridge(relay, topic, node.node_id.uuid, values=settings.dialects.values)


def _forwards(
    node: Node, texts: tuple[str, ...], dialling_trust: Callable[[str], TrustPolicy]
) -> tuple[Forward, ...]:
    wanted = [parse_forward(text) for text in dict.fromkeys(texts)]
    for topic, _ in wanted:
        if topic == CLOCK_TOPIC:
            raise ConfigError(f"cannot forward {topic!r}: every node publishes its own clock")
    require_other_node(node, *(address for _, address in wanted))
    return tuple(
        Forward(node, topic, address, trust=dialling_trust(address)) for topic, address in wanted
    )


# Federation, metrics, console and journal.


async def _open_federation(
    stack: AsyncExitStack, node: Node, settings: FederationSettings
) -> Federation | None:
    """Join the federation that the settings name, if any.

    Raises:
        ConfigError: as `Federation`.
    """
    if settings == FederationSettings():
        return None
    require_other_node(node, *settings.links)
    federation = await stack.enter_async_context(Federation(node, settings))
    offer_federation_calls(node, federation)
    offer_code_calls(node)
    return federation


async def serve_metrics(
    stack: AsyncExitStack, node: Node, settings: ServeSettings, out: Output
) -> None:
    """Serve the metrics of `node`, which need not run yet, if the settings name an address.

    Raises:
        ConfigError: the extra `metrics` is not installed.
        AddressError: not an address.
        UnreachableError: the address can't be bound.
    """
    if _OPENTELEMETRY in sys.modules:
        from parley._node.handlers.tracing import trace
        from parley._node.metrics.otel import observed

        stack.enter_context(observed(node))
        trace(node)
    if settings.metrics is None:
        return
    # Imported here because HTTP libraries take longer to import than a node takes to start.
    try:
        from parley._node.web.http_server import serve_asgi
        from parley._node.web.metrics import metrics_app, reasons_unready
    except ImportError as error:
        raise ConfigError(needs_extra(f"--metrics ({error.name})", "metrics")) from error
    app = metrics_app(node.metrics, lambda: reasons_unready(node))
    stack.enter_context(node.metrics.watched())
    url = await stack.enter_async_context(serve_asgi(app, settings.metrics))
    out.print(f"serving metrics at {url}/metrics")
    out.event("metrics", url=url)


async def _serve_console(
    stack: AsyncExitStack,
    node: Node,
    settings: Settings,
    federation: Federation | None,
    out: Output,
) -> None:
    """Serve the console if the settings name an address.

    Raises:
        ConfigError: the extra `console` is not installed.
        InsecureAddressError: others can reach the address.
        UnreachableError: it can't be bound.
    """
    if settings.serve.console is None:
        return
    try:
        # Imported here because it is an extra that is slow to import.
        from parley._node.cli.console import console_directory
        from parley._node.cli.doctor.settings_checks import findings
        from parley._node.web.console.console import Console
        from parley._node.web.console.server import serve_console
    except ModuleNotFoundError as error:
        raise ConfigError(needs_extra("the console", "console")) from error
    console = Console(
        node,
        federation=federation,
        known_peers=known_peers_of(node.trust) or KnownPeers(default_known_peers()),
        findings=partial(findings, settings, node.node_id, node.statements),
        on_drain=partial(os.kill, os.getpid(), signal.SIGTERM),
    )
    served = await stack.enter_async_context(serve_console(console, settings.serve.console))
    stack.enter_context(served.found_in(console_directory()))
    link = served.link()
    out.print(f"console (read-only, opens once): {link}")
    out.event("console", url=served.url, link=link)


async def watch_journal(out: Output, journal: Journal) -> None:
    """Report a failure of the journal; raise JournalFailedError if the node must stop then."""
    error = await journal.failure()
    if journal.stops_node:
        raise error
    out.event("journal-failed", text=str(error))


# Reports.


def _report_journal(out: Output, journal: Journal) -> None:
    for each in journal.recovered:
        cut = f", {each.cut:,} bytes truncated" if each.cut else ""
        damaged = f", {each.damaged:,} damaged" if each.damaged else ""
        out.print(f"recovered {each.name} after a crash: {each.records:,} records{damaged}{cut}")
        out.event(
            "recovered",
            segment=str(each.name),
            records=each.records,
            damaged=each.damaged,
            cut=each.cut,
        )
    auditors = [key.text for key in journal.settings.auditors]
    out.print(f"writing a journal to {journal.directory} for {', '.join(auditors)}")
    out.event("journal", directory=str(journal.directory), auditors=auditors)


def _report_bus(out: Output, settings: BusSettings) -> None:
    if settings.url is None:
        return
    url = without_password(settings.url)
    out.print(f"offering the bus at {url}")
    if not settings.allow:
        out.print("no node can use the bus; grant rights with --bus-allow")
    out.event("bus", url=url, rights=list(settings.allow))


def _report_federation(out: Output, settings: FederationSettings) -> None:
    if settings == FederationSettings():
        return
    links, members = len(settings.places), len(settings.all_members)
    out.print(f"member of a federation: {pluralise(links, 'link')}, {pluralise(members, 'member')}")
    accounts = settings.accounts
    out.event(
        "federation",
        links=list(settings.links),
        members=[str(member) for member in sorted(settings.all_members)],
        carry=list(settings.carry),
        exports=list(settings.exports),
        follow=list(settings.follow),
        accounts=accounts if isinstance(accounts, str) else list(accounts),
    )


def _report_ready(
    out: Output, node: Node, addresses: list[str], gateways: Gateways, *, announced: bool
) -> None:
    for address in addresses:
        out.print(f"listening on {address}")
    spoken: dict[str, list[str]] = {}
    for name, gateway, text in (
        ("simproto", gateways.simproto, "speaking SimProto"),
        ("named", gateways.named, "speaking named events"),
        ("relay", gateways.relay, "relaying"),
    ):
        spoken[name] = [] if gateway is None else list(gateway.addresses)
        flavour = f" ({gateway.flavour})" if isinstance(gateway, NamedGateway) else ""
        for address in spoken[name]:
            out.print(f"{text}{flavour} on {address}")
    for forward in gateways.forwards:
        out.print(f"forwarding {one_line(forward.topic.name)} of {forward.address}")
    out.event(
        "ready", node_id=str(node.node_id), addresses=addresses, **spoken, announced=announced
    )
