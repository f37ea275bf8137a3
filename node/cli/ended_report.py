"""Find the rules that still name ended node IDs, for `parley peers show` and `parley doctor`
(docs/protocol.md section 22).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parley._crypto.identity import NodeId
from parley._node.cli.context_file import Contexts
from parley._node.errors import AddressError
from parley._node.handlers.permissions import read_roles
from parley._node.settings import Settings
from parley._node.settings.tables import parse_forward
from parley._node.transport.address import Address
from parley._node.trust.ended_ids import OPEN, describe_end, last_ended
from parley._node.trust.known_peers import KnownPeers, default_accounts, default_known_peers
from parley._node.trust.petnames import Petnames
from parley._node.trust.policies import known_peers_of, parse_trust
from parley._node.trust.statement_table import MAX_STEPS, StatementTable


@dataclass(frozen=True, slots=True)
class EndedRule:
    """A rule that names an ended ID: where it is, what became of the rule, and the advice, empty if
    there is nothing to do. `applies` is whether a successor takes the place of the ID there.
    """

    node_id: NodeId
    place: str
    text: str
    mend: str
    applies: bool


def find_rules(
    table: StatementTable,
    petnames: Petnames,
    settings: Settings,
    known_peers: Path | None = None,
) -> Iterator[EndedRule]:
    """Yield the rules that name an ended ID: lines of known peers and accounts, contexts, roles and
    settings. `known_peers` replaces the default file.

    Raises:
        KnownPeersError, FileError: a file cannot be read.
        ConfigError: the home directory cannot be found.
    """
    if not table.origins:
        return
    for node_id, place in _followed(settings, known_peers):
        if table.has_ended(node_id):
            yield _rule(table, petnames, node_id, place, table.current(node_id))
    yield from find_granting_rules(table, petnames, settings)


def find_granting_rules(
    table: StatementTable, petnames: Petnames, settings: Settings
) -> Iterator[EndedRule]:
    """Yield the rules in settings and roles that grant an ended ID a right, which its successor
    gets only from a person.

    Raises:
        FileError: the file of roles cannot be read.
    """
    for node_id, place in _granted(settings):
        if table.has_ended(node_id):
            yield _rule(table, petnames, node_id, place, table.granted(node_id))


def _rule(
    table: StatementTable,
    petnames: Petnames,
    node_id: NodeId,
    place: str,
    heir: NodeId | None,
) -> EndedRule:
    current = table.current(node_id)
    ended = last_ended(table, node_id)
    last = describe_end(table, ended, petnames.of(ended))
    if heir is not None:
        text, mend = f"its successor {heir} takes its place", ""
    elif current is not None:
        text = f"its successor {current} does not take its place until you accept it"
        mend = f"to grant it the same, run: parley peers accept {_unaccepted(table, node_id)}"
    elif last.outcome in OPEN:
        text, mend = "no node takes its place until you choose a successor", last.mend
    else:
        text, mend = "no node takes its place", "remove it, or replace it by another node ID"
    return EndedRule(node_id, place, text, mend, heir is not None)


def _unaccepted(table: StatementTable, node_id: NodeId) -> NodeId:
    """Return the first ID from this one on whose successor no person has accepted."""
    for _ in range(MAX_STEPS):
        decision = table.decisions.get(node_id)
        if decision is None or decision.successor is None:
            break
        node_id = decision.successor
    return node_id


def _followed(settings: Settings, known_peers: Path | None) -> Iterator[tuple[NodeId, str]]:
    """Yield the IDs in rules that apply to a successor without a person's decision."""
    files: dict[Path, tuple[str, KnownPeers]] = {}
    policy = known_peers_of(parse_trust(settings.serve.trust))
    for title, file in (
        ("known peers", KnownPeers(known_peers or default_known_peers())),
        ("known peers", policy),
        ("accounts", KnownPeers(default_accounts())),
    ):
        if file is not None:
            files.setdefault(file.path, (title, file))
    for title, file in files.values():
        for peer in file:
            yield peer.node_id, f"{title} '{file.path}': {', '.join(peer.names) or '-'}"
    for name, context in Contexts().all().items():
        yield from _addressed(context.address, f"context {name}")
    for text in settings.serve.forward:
        yield from _addressed(parse_forward(text).address, f"serve.forward {text}")
    if not isinstance(settings.federation.accounts, str):
        for text in settings.federation.accounts:
            yield NodeId.parse(text), "federation.accounts"
    for text, node_ids in settings.federation.followed_ids.items():
        for node_id in node_ids:
            yield node_id, f"federation.follow {text}"


def _granted(settings: Settings) -> Iterator[tuple[NodeId, str]]:
    """Yield the IDs in rules that apply to a successor only after a person's decision."""
    federation = settings.federation
    for text in federation.links:
        yield from _addressed(text, f"federation.links {text}")
    for name, texts in ("members", federation.members), ("carry", federation.carry):
        for text in texts:
            yield NodeId.parse(text), f"federation.{name}"
    for right, text in zip(settings.bus.rights, settings.bus.allow, strict=True):
        if right.node_id is not None:
            yield right.node_id, f"bus.allow {text}"
    if settings.serve.roles is not None:
        for node_id, roles in read_roles(settings.serve.roles).items():
            yield node_id, f"roles '{settings.serve.roles}': {', '.join(sorted(roles))}"


def _addressed(text: str | None, place: str) -> Iterator[tuple[NodeId, str]]:
    if text is None:
        return
    try:
        address = Address.parse(text)
    except AddressError:
        return  # the command that uses it reports it
    for node_id in (address.node_id, address.server, address.home):
        if node_id is not None:
            yield node_id, place
