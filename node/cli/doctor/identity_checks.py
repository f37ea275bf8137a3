"""Checks of `parley doctor` on the user's key, ended node IDs and the rules that name them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from parley._crypto.errors import KeyFileError
from parley._crypto.identity import Identity, NodeId
from parley._crypto.keyfile import load_identity
from parley._node.cli.default_identity import default_key_path
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.cli.ended_report import find_rules
from parley._node.cli.options import NodeOptions
from parley._node.cli.param_types import read_passphrase
from parley._node.errors import ConfigError, KeyStatementsError, ParleyError
from parley._node.settings import Settings
from parley._node.trust.ended_ids import Outcome, describe_end
from parley._node.trust.key_statements import KeyStatements, default_key_statements, read_table
from parley._node.trust.petnames import Petnames
from parley._node.trust.statement_table import StatementTable

# Ended IDs that need no decision; further ones are counted.
MOST_ENDED: Final = 50

_LEVELS: Final = {Outcome.CONFLICT: Level.PROBLEM, Outcome.QUESTION: Level.NOTE}


def check_own_key(options: NodeOptions, settings: Settings) -> Iterator[Diagnosis]:
    """Check the key that the node would use: whether it can be recovered, and has not ended."""
    try:
        path = options.identity_path or settings.serve.identity or default_key_path()
        if not path.exists():
            return  # it is created when needed
        file = options.passphrase_file or settings.serve.passphrase_file
        identity = load_identity(path, read_passphrase(file))
    except (KeyFileError, ParleyError) as error:
        yield Diagnosis(Level.NOTE, "key", f"it was not checked: {error}")
        return
    yield check_recovery(identity, path)
    yield from check_own_id(identity.node_id, settings)


def check_recovery(identity: Identity, path: Path) -> Diagnosis:
    if identity.primary_key.commitment is not None:
        text = "it has a recovery key, which can name a successor if it is lost or stolen"
        return Diagnosis(Level.OK, f"key {path}", text)
    text = (
        "it has no recovery key: if it is lost or stolen, each peer must be told the new node ID "
        "by other means"
    )
    mend = "create another identity with: parley id new KEY --recovery FILE"
    return Diagnosis(Level.NOTE, f"key {path}", text, mend)


def check_own_id(
    node_id: NodeId, settings: Settings, statements: KeyStatements | None = None
) -> Iterator[Diagnosis]:
    """Check that the own ID of a node with these statements, or of commands, has not ended."""
    try:
        table = _read(settings, statements)
    except ParleyError:
        return  # check_ended_ids reports it
    if table.has_ended(node_id):
        successor = table.successor_of(node_id)
        text = f"the own node ID {node_id} has ended: peers that know refuse it"
        mend = "create another identity with: parley id new KEY --recovery FILE"
        if successor is not None:
            mend = f"use the key of its successor {successor}"
        elif table.successions_of(node_id):
            name = Petnames.of_home(follow=table.follow).of(node_id)
            mend = describe_end(table, node_id, name).mend or mend
        yield Diagnosis(Level.PROBLEM, "node ID", text, mend)


def check_ended_ids(
    settings: Settings, statements: KeyStatements | None = None
) -> Iterator[Diagnosis]:
    """Yield the open questions and conflicts, the rules that name an ended ID, and the other ended
    IDs, by the `statements` of a node, or those that commands use.
    """
    try:
        table = _read(settings, statements)
    except KeyStatementsError as error:
        text = f"{error}: nodes refuse all peers"
        yield Diagnosis(Level.PROBLEM, "key statements", text, "correct the line")
        return
    except ConfigError:
        return  # check_home reports it
    petnames = Petnames.of_home(follow=table.follow)
    endings = [describe_end(table, origin, petnames.of(origin)) for origin in table.origins]
    closed = [one for one in endings if one.outcome not in _LEVELS]
    for one in [one for one in endings if one.outcome in _LEVELS] + closed[:MOST_ENDED]:
        subject = f"ended {petnames.beside(one.node_id)}"
        yield Diagnosis(_LEVELS.get(one.outcome, Level.OK), subject, one.text, one.mend)
    if len(closed) > MOST_ENDED:
        text = f"{len(closed) - MOST_ENDED:,} further node IDs have ended"
        yield Diagnosis(Level.OK, "key statements", text, "parley peers show")
    try:
        for rule in find_rules(table, petnames, settings):
            level = Level.OK if rule.applies else Level.WEAK
            text = f"it names the ended node ID {petnames.beside(rule.node_id)}: {rule.text}"
            yield Diagnosis(level, rule.place, text, rule.mend)
    except ParleyError as error:
        text = f"the rules that name ended node IDs were not all checked: {error}"
        yield Diagnosis(Level.NOTE, "key statements", text)
    if not endings:
        yield Diagnosis(Level.OK, "key statements", "no node ID has ended")


def _read(settings: Settings, statements: KeyStatements | None) -> StatementTable:
    if statements is not None:
        if statements.error is not None:
            raise statements.error
        return statements.table
    return read_table(default_key_statements(), follow=settings.serve.follows_successors)
