"""`parley peers apply`, `accept`, `refuse` and `show`: ended node IDs and their successors
(docs/protocol.md section 22).
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio

from parley._crypto.identity import NodeId
from parley._crypto.statements import SUCCESSION, Statement
from parley._node.cli.ended_report import find_rules
from parley._node.cli.output import Output, format_time
from parley._node.cli.peers import fits, output_with_settings
from parley._node.cli.prompts import can_prompt, prompt_yes_no
from parley._node.cli.statements import fields_of, id_lines
from parley._node.errors import ConfigError, ParleyError
from parley._node.settings import load_settings
from parley._node.trust.ended_ids import OWNER, Ending, Outcome, describe_end, in_words
from parley._node.trust.files import utc_text
from parley._node.trust.key_statements import KeyStatements, default_key_statements, read_table
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.statement_file import load_statement
from parley._node.trust.statement_table import StatementTable, StoredStatement
from parley._node.trust.words import fingerprint

NONE: Final = "none"

_REVOKED: Final = "The ID ends: its sessions close, and no node takes its place."
_FOLLOWED: Final = """\
The old ID ends, and the successor takes over its names, addresses and account.
Compare the words of the successor with {who} over another channel."""
_ASKED: Final = """\
The old ID ends. A thief of its primary key could also have signed this: the successor
takes its place only after you accept it."""
_CONFLICT: Final = "The old ID ends: {text}, and none of them is trusted until you accept it."
_RIGHTS: Final = (
    "to give it the rights of the old ID (members, carry, bus.allow, roles, allow=), run: "
    "parley peers accept {origin}"
)


def apply(path: Path, yes: bool, config: Path | None, as_json: bool) -> None:
    out = output_with_settings(config, as_json)
    statement = load_statement(path)
    stored, origin, now = default_key_statements(), statement.origin, datetime.now(UTC)
    table = read_table(stored, follow=out.follow)
    is_new = statement.slot not in table.stored
    out.event("statement", **_fields_of(out, statement))
    for line in _lines_of(out, statement):
        out.print(line)
    if is_new:
        if not yes:
            after = table.with_statement(StoredStatement(statement, now))
            _confirm(out, path, statement, describe_end(after, origin, out.petnames.of(origin)))
        with _opened(stored) as statements:
            is_new = statements.apply(statement.encoded)
        out.effect = "stored the statement"
        table = read_table(stored, follow=out.follow)
    out.print(f"stored in   {stored}{'' if is_new else ' (before; nothing has changed)'}")
    ending = describe_end(table, origin, out.petnames.of(origin))
    out.print(f"now         {out.petnames.in_text(ending.text)}")
    mend = ending.mend
    if ending.outcome is Outcome.FOLLOWED:
        mend = _RIGHTS.format(origin=origin)
    if mend:
        out.print(f"to do       {mend}")
    out.done(
        path=str(path),
        **_fields_of(out, statement),
        stored=is_new,
        **_state_of(table, ending),
        key_statements=str(stored),
    )


def accept(who: str, successor: str | None, config: Path | None, as_json: bool) -> None:
    _decide(who, successor, output_with_settings(config, as_json))


def refuse(who: str, config: Path | None, as_json: bool) -> None:
    _decide(who, NONE, output_with_settings(config, as_json))


def show(known_peers: Path | None, config: Path | None, as_json: bool) -> None:
    stored, settings = default_key_statements(), load_settings(config)
    out = Output(as_json, follow=settings.serve.follows_successors)
    table = read_table(stored, follow=out.follow)
    rules = list(find_rules(table, out.petnames, settings, known_peers))
    outcomes = []
    for origin in table.origins:
        ending = describe_end(table, origin, out.petnames.of(origin))
        outcomes.append(ending.outcome)
        state = _state_of(table, ending)
        out.event("ended", node_id=str(origin), words=fingerprint(origin), **state)
        out.print(f"{out.petnames.beside(origin)} has ended")
        out.print(f"words       {fingerprint(origin)}")
        for one in table.statements_of(origin):
            time = utc_text(table.stored[one.slot].time)
            out.event("statement", **_fields_of(out, one), time=time)
            what = "ends it" if one.successor is None else f"names {one.successor}"
            out.print(f"statement   {what}, signed by {_signer(one)}, stored {time}")
            if one.successor is not None:
                out.print(f"words       {fingerprint(one.successor)}")
        out.print(f"now         {out.petnames.in_text(ending.text)}")
        if ending.mend:
            out.print(f"to do       {ending.mend}")
        for rule in rules:
            if rule.node_id == origin:
                out.print(f"rule        {rule.place}: {out.petnames.in_text(rule.text)}")
                if rule.mend not in ("", ending.mend):
                    out.print(f"to do       {rule.mend}")
        out.print("")
    for origin, decision in table.decisions.items():
        chosen = decision.successor and str(decision.successor)
        out.event("decision", origin=str(origin), successor=chosen, time=utc_text(decision.time))
    for rule in rules:
        out.event(
            "rule",
            node_id=str(rule.node_id),
            place=rule.place,
            applies=rule.applies,
            text=rule.text,
            mend=rule.mend,
        )
    if not table.origins:
        out.print(f"no node ID has ended in {stored}")
    out.done(
        count=len(outcomes),
        questions=outcomes.count(Outcome.QUESTION),
        conflicts=outcomes.count(Outcome.CONFLICT),
        rules=len(rules),
        key_statements=str(stored),
    )


def _decide(who: str, named: str | None, out: Output) -> None:
    stored, known = default_key_statements(), KnownPeers(default_known_peers())
    table = read_table(stored, follow=out.follow)
    origin = _find_ended(table, known, who)
    successor = _choose(table, origin, named, out.petnames.of(origin) or OWNER)
    with _opened(stored) as statements:
        statements.decide(origin, successor)
    old = out.petnames.beside(origin)
    table = read_table(stored, follow=out.follow)
    if successor is None:
        out.effect = f"refused the successors of {origin}"
        out.print(f"refused     every successor of {old}")
        out.print(f"words       {fingerprint(origin)}")
        out.print("            the ID stays ended, and no node takes its place")
        if table.successions_of(origin):
            out.print(f"to undo     parley peers accept {origin} --as ID")
    else:
        out.effect = f"accepted {successor} as the successor of {origin}"
        out.print(f"accepted    {out.petnames.beside(successor)}")
        out.print(f"words       {fingerprint(successor)}")
        out.print(f"in place of {old}")
        out.print(f"words       {fingerprint(origin)}")
        (by,) = (one for one in table.successions_of(origin) if one.successor == successor)
        out.print(f"signed by   {_signer(by)}")
        out.print("            it also has the rights that were granted to the old ID")
        if table.has_ended(successor):
            ending = describe_end(table, successor, out.petnames.of(successor))
            out.print(f"note        it has ended too: {out.petnames.in_text(ending.text)}")
            if ending.mend:
                out.print(f"to do       {ending.mend}")
    out.done(
        origin=str(origin),
        origin_words=fingerprint(origin),
        successor=None if successor is None else str(successor),
        successor_words=None if successor is None else fingerprint(successor),
        **_state_of(table, describe_end(table, origin, out.petnames.of(origin))),
        **out.petnames.known_by(origin),
        key_statements=str(stored),
    )


def _find_ended(table: StatementTable, known: KnownPeers, who: str) -> NodeId:
    """Return the ended ID with this name, address, node ID or prefix of a node ID.

    Raises:
        ConfigError: no ended ID matches, or another ended ID or known peer matches too.
        KnownPeersError: the file of known peers cannot be read.
    """
    named = dict.fromkeys(peer.node_id for peer in known if fits(peer.node_id, peer.names, who))
    found = dict.fromkeys([*named, *(one for one in table.origins if fits(one, (), who))])
    if not found:
        raise ConfigError(
            f"cannot find an ended node ID by {who!r}: list all with: parley peers show"
        )
    if len(found) > 1:
        raise ConfigError(
            f"cannot choose an ended node ID by {who!r}: it matches {', '.join(map(str, found))}"
        )
    (origin,) = found
    if not table.has_ended(origin):
        raise ConfigError(
            f"cannot choose a successor of {origin}: the ID has not ended; store the statement "
            "that ends it with: parley peers apply FILE"
        )
    return origin


def _choose(table: StatementTable, origin: NodeId, named: str | None, owner: str) -> NodeId | None:
    """Return the stored successor that has the whole ID `named`, or the only one; None for `none`.
    A prefix is not enough for a decision that grants rights. `owner` is the person to ask.

    Raises:
        ConfigError: no stored successor matches, or several are stored and none is named.
    """
    if named == NONE:
        return None
    stored = [one.successor for one in table.successions_of(origin) if one.successor is not None]
    if not stored:
        raise ConfigError(
            f"cannot accept a successor of {origin}: no stored statement names one; store one "
            "with: parley peers apply FILE"
        )
    several = " or ".join(map(str, stored))
    if named is None:
        if len(stored) == 1:
            return stored[0]
        raise ConfigError(
            f"cannot choose a successor of {origin}: {in_words(len(stored))} are stored; ask "
            f"{owner} which is right, then give --as {several}"
        )
    for successor in stored:
        if successor.text == named:
            return successor
    raise ConfigError(
        f"cannot accept {named!r} as the successor of {origin}: give the whole node ID of a "
        f"successor that the stored statements name: {several}"
    )


def _confirm(out: Output, path: Path, statement: Statement, ending: Ending) -> None:
    """Ask whether to store a statement, which leads to this ending.

    Raises:
        ConfigError: there is no terminal to ask at.
        ParleyError: the user declined.
    """
    if not can_prompt(out):
        raise ConfigError(
            f"cannot apply the statement '{path}': there is no terminal to ask at; check the "
            "node IDs, then give --yes"
        )
    who, names_one = out.petnames.of(statement.origin) or OWNER, statement.kind == SUCCESSION
    match ending.outcome:
        case Outcome.REVOKED:
            text = _REVOKED
        case Outcome.FOLLOWED if names_one:
            text = _FOLLOWED.format(who=who)
        case Outcome.QUESTION if names_one and not statement.by_recovery:
            text = _ASKED
        case Outcome.CONFLICT:
            text = _CONFLICT.format(text=ending.text)
        case _:
            text = f"The ID ends; {ending.text}."
    # The user has not seen these lines if standard output is a file.
    lines = [] if sys.stdout.isatty() else _lines_of(out, statement)
    if not anyio.run(prompt_yes_no, "\n".join([*lines, text, "Store this statement?"])):
        raise ParleyError(f"cannot apply the statement '{path}': you declined")


@contextmanager
def _opened(path: Path) -> Iterator[KeyStatements]:
    """Yield the file of key statements. Its changes are not logged: the command reports them."""
    logger = logging.getLogger("parley.trust")
    was, logger.disabled = logger.disabled, True
    try:
        yield KeyStatements(path)
    finally:
        logger.disabled = was


def _lines_of(out: Output, statement: Statement) -> list[str]:
    made = format_time(statement.made_ms * 1_000_000)
    return [
        *id_lines(out, statement),
        f"signed by   {_signer(statement)}",
        f"made        {made}, as the signer claims",
    ]


def _signer(statement: Statement) -> str:
    return f"its {'recovery' if statement.by_recovery else 'primary'} key"


def _fields_of(out: Output, statement: Statement) -> dict[str, Any]:
    return {**fields_of(statement), **out.petnames.known_by(statement.origin)}


def _state_of(table: StatementTable, ending: Ending) -> dict[str, Any]:
    current, granted = table.current(ending.node_id), table.granted(ending.node_id)
    return {
        "outcome": ending.outcome,
        "current": None if current is None else str(current),
        "granted": None if granted is None else str(granted),
        "mend": ending.mend,
    }
