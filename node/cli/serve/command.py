"""`parley serve` and `parley run`: a node that runs until a signal."""

import os
import platform
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from parley._lbm.codec import Value
from parley._node import VERSION
from parley._node.apps.codes.slots import offer_code_calls
from parley._node.bus.address import without_password
from parley._node.cli.bus.connection import require_own
from parley._node.cli.ending import longest_end
from parley._node.cli.options import (
    NodeOptions,
)
from parley._node.cli.output import Output, counted
from parley._node.cli.run import ending_signals, make_node, require_other, run, say_closed
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.bus_rights import BusRights, require_bus
from parley._node.cli.serve.reload import Reloader, RunningServer
from parley._node.cli.serve.supervisor import Supervisor
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
from parley._node.settings import FederationSettings, ServeSettings, Settings, load_settings
from parley._node.settings.tables import BusSettings, parse_accounts, parse_forward
from parley._node.transport.backend import keep_freed_memory
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.policies import TrustPolicy, known_peers_of


def offer_builtin_calls(node: Node) -> None:
    """`parley.echo` answers its data, be it a call or a named event; `parley.info`
    tells of the node that answers and of the caller; `parley.topics` of what it offers."""
    node.offer_topics()

    @node.on_call("parley.echo")
    async def echo(call: Call) -> Value:
        """Answers what it is called with."""
        return call.data

    @node.on("parley.echo")
    async def echo_event(event: NamedEvent) -> Payload:
        """Replies with what it carries."""
        return event.payload  # unread: raw bytes and tandem payloads have no format to read by

    @node.on_call("parley.info")
    async def info(call: Call) -> dict[str, Value]:
        """Tells of this node, and of the caller as it is seen here."""
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


CLOCK_TOPIC = "parley.clock"
CLOCK_INTERVAL = 1.0  # seconds


def offer_clock(node: Node) -> Topic:
    """Have a node publish the topic; `tick` makes its notes."""
    # An old time is of no use: old notes are lost, not the subscription.
    return node.topic(CLOCK_TOPIC, slow="drop-oldest", patience=0)


async def tick(topic: Topic, interval: float) -> None:
    """Publish `{"time": UTC in ISO 8601, "count": from 1}` every `interval` seconds, for ever."""
    start, ticks, count = anyio.current_time(), 0, 0
    while True:
        ticks = max(ticks, int((anyio.current_time() - start) / interval)) + 1
        await anyio.sleep_until(start + ticks * interval)
        count += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await topic.publish({"time": now, "count": count})


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is joined to a node: gateways, of which each is there even if it listens nowhere,
    and topics of other nodes."""

    simproto: SimProtoGateway
    named: NamedGateway
    relay: Relay
    forwards: tuple[Forward, ...]

    async def listen(self, settings: Settings) -> None:
        """Listen for all dialects.

        Raises:
            InsecureAddressError: others could reach an address, and that is not allowed.
            UnreachableError: one cannot be listened on.
        """
        for gateway, spoken in (
            (self.simproto, settings.simproto),
            (self.named, settings.named),
            (self.relay, settings.relay),
        ):
            for address in spoken.listen:
                allow_insecure = settings.dialects.allow_insecure
                await gateway.listen(address, allow_insecure=allow_insecure)

    def relay_counts(self) -> dict[str, int]:
        """Return how many clients and messages the relay dropped; nothing without a relay."""
        if not self.relay.addresses:
            return {}
        names = ("dropped", "undeliverable", "turned_away")
        return {name: getattr(self.relay, name) for name in names}


@asynccontextmanager
async def joined(
    node: Node, settings: Settings, trust_of: Callable[[str], TrustPolicy]
) -> AsyncIterator[Spoken]:
    """The gateways of a node, which do not listen yet, and its forwarded topics; `trust_of`
    gives the trust policy for an address.

    Raises:
        ConfigError: a topic cannot be forwarded.
    """
    async with AsyncExitStack() as stack:
        named, relay, dialects = settings.named, settings.relay, settings.dialects
        limits, values = dialects.limits, dialects.values
        spoken = Spoken(
            SimProtoGateway(node, limits=limits, values=values),
            NamedGateway(node, flavour=named.flavour, format=named.format, limits=limits),
            Relay(limits=limits, feedback=relay.feedback),
            _forwards(node, settings.serve.forward, trust_of),
        )
        await stack.enter_async_context(spoken.simproto)
        await stack.enter_async_context(spoken.named)
        await stack.enter_async_context(spoken.relay)
        if relay.bridge is not None:
            await stack.enter_async_context(_bridge(node, spoken.relay, settings))
        for forward in spoken.forwards:
            await stack.enter_async_context(forward)
        yield spoken


def _bridge(node: Node, relay: Relay, settings: Settings) -> Bridge:
    """Join the relay to a topic of the node, which also takes calls of that name."""
    name = settings.relay.bridge
    if not (name and settings.relay.listen):
        raise ConfigError(
            f"cannot bridge the topic '{name}': it is empty, or no relay listens; give --relay ADDR"
        )
    topic = node.topics.get(name) or node.topic(name)

    @node.on_call(name)
    async def publish(call: Call) -> None:
        """Publish the data of the call."""
        await topic.publish(call.data)

    return Bridge(relay, topic, node.node_id.uuid, values=settings.dialects.values)


def _forwards(
    node: Node, texts: tuple[str, ...], trust_of: Callable[[str], TrustPolicy]
) -> tuple[Forward, ...]:
    wanted = [parse_forward(text) for text in dict.fromkeys(texts)]
    for topic, _ in wanted:
        if topic == CLOCK_TOPIC:
            raise ConfigError(f"{topic} cannot be forwarded: each node has a clock of its own")
    require_other(node, *(address for _, address in wanted))
    return tuple(
        Forward(node, topic, address, trust=trust_of(address)) for topic, address in wanted
    )


@asynccontextmanager
async def offered(node: Node, settings: BusSettings, rights: BusRights) -> AsyncIterator[None]:
    """While it lasts, the node offers the bus of the settings, if they name one.

    Raises:
        ConfigError: no address of a bus. BusError: it cannot be opened.
    """
    if settings.url is None:
        yield
        return
    require_own(settings.url)
    async with node.bus(settings.url, allow=rights.allow):
        yield


def announce_bus(out: Output, settings: BusSettings) -> None:
    """Say what is offered, and to how many."""
    if settings.url is None:
        return
    url = without_password(settings.url)
    out.say(f"offering the bus at {url}")
    if not settings.allow:
        out.say("no node may use it: give --bus-allow")
    out.event("bus", url=url, rights=list(settings.allow))


def told(
    link: list[str] | None,
    member: list[str] | None,
    carry: list[str] | None,
    export: list[str] | None,
    follow: list[str] | None,
    accounts: str | None,
) -> dict[str, tuple[str, object]]:
    """Return the options that set the table `[federation]`, for `load_settings`."""
    return {
        "federation.links": ("--link", link or None),
        "federation.members": ("--member", member or None),
        "federation.carry": ("--carry", carry or None),
        "federation.exports": ("--export", export or None),
        "federation.follow": ("--follow", follow or None),
        "federation.accounts": (
            "--accounts",
            None if accounts is None else parse_accounts(accounts),
        ),
    }


@asynccontextmanager
async def federated(node: Node, settings: FederationSettings) -> AsyncIterator[Federation | None]:
    """While it lasts, the node takes the part in a federation that the settings name, if any.

    Raises:
        ConfigError: it cannot be, as `Federation`.
    """
    if settings == FederationSettings():
        yield None
        return
    require_other(node, *settings.links)
    async with Federation(node, settings) as federation:
        offer_federation_calls(node, federation)
        offer_code_calls(node)
        yield federation


def announce_federation(out: Output, settings: FederationSettings) -> None:
    """Say what part is taken."""
    if settings == FederationSettings():
        return
    links, members = len(settings.places), len(settings.all_members)
    out.say(f"a server of a federation: {counted(links, 'link')}, {counted(members, 'member')}")
    out.event(
        "federation",
        links=list(settings.links),
        members=[str(member) for member in sorted(settings.all_members)],
        carry=list(settings.carry),
        exports=list(settings.exports),
        follow=list(settings.follow),
        accounts=settings.accounts
        if isinstance(settings.accounts, str)
        else list(settings.accounts),
    )


def journal_told(
    directory: Path | None,
    auditors: list[str] | None,
    fsync: str | None,
    on_failure: str | None,
) -> dict[str, tuple[str, object]]:
    """Return the options that set the table `[journal]`, for `load_settings`."""
    return {
        "journal.directory": ("--journal", directory),
        "journal.auditors": ("--auditor", auditors or None),
        "journal.fsync": ("--journal-fsync", fsync),
        "journal.on_failure": ("--journal-on-failure", on_failure),
    }


def announce_journal(out: Output, journal: Journal) -> None:
    """Say where it is kept and for whom, and what of earlier runs was recovered."""
    for each in journal.recovered:
        cut = f", {each.cut:,} bytes cut off its end" if each.cut else ""
        damaged = f", {each.damaged:,} damaged" if each.damaged else ""
        out.say(f"closed {each.name}, left by a crash: {each.records:,} records{damaged}{cut}")
        out.event(
            "recovered",
            segment=str(each.name),
            records=each.records,
            damaged=each.damaged,
            cut=each.cut,
        )
    auditors = [key.text for key in journal.settings.auditors]
    out.say(f"keeping a journal in {journal.directory} for {', '.join(auditors)}")
    out.event("journal", directory=str(journal.directory), auditors=auditors)


async def watch_journal(out: Output, journal: Journal) -> None:
    """Wait until it fails, and say so; raise JournalFailedError if that ends the node."""
    error = await journal.failure()
    if journal.stops_node:
        raise error
    out.event("journal-failed", text=str(error))


# A program that has imported this has somebody who reads what goes through OpenTelemetry's API:
# it does nothing by itself.
_OPENTELEMETRY: Final = "opentelemetry.metrics"


@asynccontextmanager
async def metered(node: Node, settings: ServeSettings, out: Output) -> AsyncIterator[None]:
    """While it lasts, tell the numbers of `node`, which need not run yet, as the settings have it.

    Raises:
        ConfigError: the extra `metrics` is not installed. AddressError: not an address.
        UnreachableError: it cannot be listened on.
    """
    async with AsyncExitStack() as stack:
        if _OPENTELEMETRY in sys.modules:
            from parley._node.handlers.tracing import trace
            from parley._node.metrics.otel import observed

            stack.enter_context(observed(node))
            trace(node)
        if settings.metrics is not None:
            # Here: HTTP and its libraries take longer to import than a node to start.
            try:
                from parley._node.web.http_server import serve_asgi
                from parley._node.web.metrics import metrics_app, reasons_unready
            except ImportError as error:
                raise ConfigError(needs_extra(f"--metrics ({error.name})", "metrics")) from error
            app = metrics_app(node.metrics, lambda: reasons_unready(node))
            stack.enter_context(node.metrics.watched())
            url = await stack.enter_async_context(serve_asgi(app, settings.metrics))
            out.say(f"telling metrics at {url}/metrics")
            out.event("metrics", url=url)
        yield


@asynccontextmanager
async def watched(
    node: Node, settings: Settings, federation: Federation | None, out: Output
) -> AsyncIterator[None]:
    """While it lasts, serve the console at the address of the settings, if they name one.

    Raises:
        ConfigError: what it needs is not installed. InsecureAddressError: others could reach it.
        UnreachableError: it cannot be listened on.
    """
    if settings.serve.console is None:
        yield
        return
    try:
        # Here: what it needs is an extra, and slow to load.
        from parley._node.cli.doctor.settings_checks import findings
        from parley._node.web.console.console import Console
        from parley._node.web.console.server import serve_console
    except ModuleNotFoundError as error:
        raise ConfigError(needs_extra("the console", "console")) from error
    console = Console(
        node,
        federation=federation,
        known_peers=known_peers_of(node.trust) or KnownPeers(default_known_peers()),
        findings=partial(findings, settings),
        on_drain=partial(os.kill, os.getpid(), signal.SIGTERM),
    )
    async with serve_console(console, settings.serve.console) as served:
        with served.found_in(consoles()):
            link = served.link()
            out.say(f"the console, to look, once: {link}")
            out.event("console", url=served.url, link=link)
            yield


def consoles() -> Path:
    """Where consoles say how they are reached; ConfigError without a home."""
    return default_known_peers().parent / "consoles"


@asynccontextmanager
async def announced(
    node: Node, settings: ServeSettings, out: Output, *, server: bool
) -> AsyncIterator[None]:
    """Announce the node, if that is wanted; raises as `announce`."""
    if not settings.announce:
        yield
        return
    async with announce(node, name=settings.announce_name, server=server):
        out.say("announced on the local network")
        yield


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


def run_application(
    options: NodeOptions,
    target: str,
    listen: list[str] | None,
    config: Path | None,
    app_dir: Path,
    reload: bool,
    reload_dir: list[Path] | None,
    tells: bool,
    announce: bool | None,
    announce_name: str | None,
    journal: Path | None,
    auditor: list[str] | None,
    journal_fsync: str | None,
    journal_on_failure: str | None,
    metrics: str | None,
    console: str | None,
    access_log: bool | None,
    log_requests: bool | None,
) -> None:
    """Serve the node of a module, or one that its function is given, until SIGINT or SIGTERM.

    SIGHUP has the settings read again.
    """
    if reload:
        from parley._node.cli.serve.autoreload import keep_running

        keep_running(options, reload_dir or [app_dir], [config] if config else [])
        return
    application = Application(target, app_dir, tells=tells)

    def read() -> Settings:
        return load_settings(
            config,
            options=serve_told(
                listen, announce, announce_name, console, metrics, access_log, log_requests
            )
            | journal_told(journal, auditor, journal_fsync, journal_on_failure),
        )

    serve_by(read, options, application)
