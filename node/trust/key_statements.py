"""`KeyStatements`: the statements and decisions about ended node IDs that a node has stored, in
memory and in a file (docs/protocol.md section 22).

    line = statement BASE64 TIME
         | decision ORIGIN SUCCESSOR-or-none TIME

TIME is UTC in ISO 8601. Processes can share the file: they change it under a lock and replace it
atomically. Signatures are verified before a statement is stored, and not when the file is read.
"""

import base64
import binascii
import logging
import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from threading import RLock
from typing import Final

from parley._crypto.errors import IdentityError, StatementError
from parley._crypto.identity import NodeId
from parley._crypto.statements import Statement, parse_chain
from parley._node.errors import APPLICATION_ERRORS, KeyStatementsError
from parley._node.logs import RateLimitedLogger
from parley._node.trust.ended_ids import Outcome, describe_claims, describe_end, outcome_of
from parley._node.trust.files import (
    current_stamp,
    file_stamp,
    home_directory,
    locked,
    read_file,
    read_utc,
    replace_file,
    resolved,
    to_seconds,
    utc_text,
)
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.statement_table import (
    Decision,
    IdsOnRecord,
    StatementTable,
    StoredStatement,
)

logger = logging.getLogger("parley.trust")

PathLike = str | os.PathLike[str]

MAX_FILE_SIZE: Final = 8 * 1_048_576
# Seconds to wait for another process, unless a person waits. Handshakes wait for the same time, and
# the statement counts in memory until then.
BRIEF_LOCK_TIMEOUT: Final = 0.1

# Why statements behind too many wrong signatures are not read.
ABOVE_RATE: Final = "above-rate"

_NONE: Final = "none"
# The checks that cost more than reading a statement.
_SIGNATURES: Final = frozenset({"signature", "consent"})


class Offer(StrEnum):
    """What became of a statement that another node sent."""

    STORED = "stored"
    KNOWN = "known"
    NOT_ON_RECORD = "not-on-record"
    FULL = "full"


def default_key_statements() -> Path:
    """Return the path of `key_statements` in $PARLEY_HOME or ~/.config/parley.

    Raises:
        ConfigError: the home directory cannot be found.
    """
    return home_directory() / "key_statements"


class KeyStatements:
    """The stored statements of succession and revocation, and the decisions of persons.

    They are in the file at `path`, or only in memory without one; a missing file is empty.
    `follow` is whether the only successor that a recovery key names is followed without a
    decision. `present` is whether the node sends its peers the successions that lead to its own ID.
    The lines of `known_peers` are on record, like those of the file that the node's trust policy
    reads (rule 22.30).
    The functions in `listeners` are called after each change, in the thread that made
    it. Methods that change the file, and `refresh`, block for milliseconds.

    Example:

        from parley import Identity, Node
        from parley.trust import KeyStatements

        statements = KeyStatements("key_statements")
        node = Node(Identity.create(), statements=statements)
        assert not statements.table.has_ended(node.node_id)
    """

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        follow: bool = True,
        present: bool = True,
        known_peers: KnownPeers | None = None,
    ) -> None:
        self.path = None if path is None else resolved(path)
        self.present = present
        self.known_peers = known_peers
        self.listeners: list[Callable[[], None]] = []
        self.table = StatementTable(follow=follow)
        # Why the file could not be read; the table has what was read before.
        self.error: KeyStatementsError | None = None
        # Why the file lacks something that the table has, or None.
        self._lacking: KeyStatementsError | None = None
        self._stamp: Hashable = self
        self._lock = RLock()
        # The statements of other nodes that were not stored, by reason: an `Offer`, that of a
        # `StatementError`, or ABOVE_RATE.
        self.dropped = Counter[str]()
        # Two: a peer's refused statements must not hide what was dropped.
        self._refusals, self._drops = RateLimitedLogger(), RateLimitedLogger()

    def stamp(self) -> Hashable:
        """Return a value that identifies the file's state without reading it, or None without a
        file.

        Raises:
            KeyStatementsError: the state cannot be found.
        """
        return None if self.path is None else current_stamp(self.path, KeyStatementsError)

    def refresh(self) -> None:
        """Read the file again if it has changed.

        Raises:
            KeyStatementsError: it cannot be read, or a line is malformed; the error names the
                line. `table` stays unchanged.
        """
        with self._lock:
            try:
                stamp = self.stamp()
                if self.error is None and stamp == self._stamp:
                    return
                table = self._read()
            except KeyStatementsError as error:
                self.error = error
                raise
            self.error = None
            is_first, self._stamp = self._stamp is self, stamp
            # What was stored before is no news at each start.
            self._use(table, logs=not is_first)

    def write_again(self) -> None:
        """Write the statements and decisions that the file lacks, if there are any.

        Raises:
            KeyStatementsError: they cannot be written yet.
        """
        with self._lock:
            if self._lacking is not None:
                self._change(lambda table: table, timeout=BRIEF_LOCK_TIMEOUT)

    def offer(self, encoded: bytes, records: IdsOnRecord, now: datetime) -> Offer:
        """Store a statement that another node sent, if its origin is on record and there is room.

        Raises:
            StatementError: it is not valid.
        """
        with self._lock:
            try:
                return self._offer(Statement.parse(encoded), records, now)
            except StatementError as error:
                self.dropped[error.reason] += 1
                raise

    def offer_all(
        self,
        encoded: Sequence[bytes],
        records: IdsOnRecord,
        now: datetime,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> StatementError | None:
        """Store the statements that another node sent, like `offer`, and return the last error.

        `goes_on` is called after each wrong signature. If it returns False, the others are dropped.
        """
        failed = None
        for number, one in enumerate(encoded, 1):
            try:
                self.offer(one, records, now)
            except StatementError as error:
                failed = error
                if error.reason in _SIGNATURES and not goes_on():
                    self.dropped[ABOVE_RATE] += len(encoded) - number
                    break
        return failed

    def offer_chain(
        self, encoded: Sequence[bytes], node_id: NodeId, records: IdsOnRecord, now: datetime
    ) -> None:
        """Store the successions that the peer `node_id` presented in its Proof, in their order
        until one is not valid. A broken chain is ignored. Either is logged, at a limited rate.
        """
        with self._lock:
            refused = len(encoded)
            try:
                chain = parse_chain(encoded, node_id)
                refused = 1
                for statement in chain:
                    self._offer(statement, records, now)
            except StatementError as error:
                self.dropped[error.reason] += refused
                self._refusals.log(
                    logger,
                    logging.WARNING,
                    now.timestamp(),
                    "ignored statements that %s presented: %s",
                    node_id,
                    error,
                    extra={"event": "identity.statement-refused", "peer": node_id},
                )

    def apply(self, encoded: bytes) -> bool:
        """Store a statement that a person gives, of at most 16,384 bytes, on record or not. Return
        False if one of the same meaning is stored already.

        Raises:
            StatementError: it is not valid; its `reason` is the one in section 22.
            KeyStatementsError: the file cannot be read or written, or is full.

        Example:

            from parley import Identity, create_revocation, load_statement, save_statement
            from parley.trust import KeyStatements

            save_statement("revocation", create_revocation(Identity.create()))
            statements = KeyStatements()
            assert statements.apply(load_statement("revocation").encoded)
        """
        statement = Statement.parse(encoded)
        statement.verify()
        with self._lock:
            self.refresh()
            if statement.slot in self.table.stored:
                if self._lacking is not None:
                    self._change(lambda table: table)
                return False
            now = datetime.now(UTC)
            self._store(StoredStatement(statement, to_seconds(now)), must_write=True)
            return True

    def decide(self, origin: NodeId, successor: NodeId | None) -> None:
        """Store a person's choice of the successor of an ID, or of none.

        Raises:
            KeyStatementsError: the ID has not ended, no stored statement names this successor, or
                the file cannot be read or written, or is full.
        """
        with self._lock:
            self.refresh()
            if not self.table.has_ended(origin):
                raise KeyStatementsError(
                    f"cannot decide about {origin}: no stored statement has ended it; store one "
                    "with `parley peers apply`"
                )
            named = [one.successor for one in self.table.successions_of(origin)]
            if successor is not None and successor not in named:
                raise KeyStatementsError(
                    f"cannot accept {successor} as the successor of {origin}: no stored statement "
                    "names it; store one with `parley peers apply`"
                )
            decision = Decision(successor, to_seconds(datetime.now(UTC)))
            self._change(lambda table: table.with_decision(origin, decision))

    def __repr__(self) -> str:
        return f"<KeyStatements {self.path or 'in memory'}: {len(self.table.stored)} statements>"

    def _offer(self, statement: Statement, records: IdsOnRecord, now: datetime) -> Offer:
        table = self.table
        if statement.slot in table.stored:
            return Offer.KNOWN
        if not (
            table.is_on_record(statement.origin, records.named)
            or table.is_on_record(statement.origin, records.seen)
        ):
            self.dropped[Offer.NOT_ON_RECORD] += 1
            return Offer.NOT_ON_RECORD
        if not table.has_room(statement, records):
            self.dropped[Offer.FULL] += 1
            self._drops.log(
                logger,
                logging.ERROR,
                now.timestamp(),
                "dropped a statement about %s: there is no room for it; store it from its file "
                "with `parley peers apply`",
                statement.origin,
                extra={"event": "identity.statement-dropped", "peer": statement.origin},
            )
            return Offer.FULL
        statement.verify()
        self._store(StoredStatement(statement, to_seconds(now)), must_write=False)
        return Offer.STORED

    def _store(self, one: StoredStatement, *, must_write: bool) -> None:
        if must_write:
            self._change(lambda table: table.with_statement(one))
            return
        # After a failure `write_again` tries for all: handshakes wait while a statement is stored.
        if self._lacking is None:
            try:
                self._change(lambda table: table.with_statement(one), timeout=BRIEF_LOCK_TIMEOUT)
            except KeyStatementsError as error:
                self._lacking = error
            else:
                return
        # The ID must end even if a full disk keeps the file from changing.
        logger.error(
            "%s; the end of %s is kept in memory only",
            self._lacking,
            one.statement.origin,
            extra={"event": "identity.not-written", "peer": one.statement.origin},
        )
        self._use(self.table.with_statement(one))

    def _change(
        self,
        change: Callable[[StatementTable], StatementTable],
        *,
        timeout: float | None = None,
    ) -> None:
        if self.path is None:
            self._use(change(self.table))
            return
        with locked(self.path, KeyStatementsError, timeout=timeout):
            # Parsing a large file costs more than another node pays for a statement.
            is_current = self.error is None and self.stamp() == self._stamp
            table = change(self.table if is_current else self._read())
            data = format_lines(table)
            if len(data) > MAX_FILE_SIZE:
                raise KeyStatementsError(
                    f"cannot write {self.path}: it would exceed {MAX_FILE_SIZE:,} bytes"
                )
            self._stamp = file_stamp(replace_file(self.path, data, KeyStatementsError))
            self._lacking = None
        self._use(table)

    def _use(self, table: StatementTable, *, logs: bool = True) -> None:
        before, self.table = self.table, table
        if before.stored.keys() == table.stored.keys() and before.decisions == table.decisions:
            return
        if logs:
            _log_changes(before, table)
        for listener in list(self.listeners):
            try:
                listener()
            except APPLICATION_ERRORS:
                # The others must learn that an ID has ended.
                logger.exception(
                    "a listener of key statements failed",
                    extra={"event": "identity.listener-failed"},
                )

    def _read(self) -> StatementTable:
        """Return the table in the file, with all that was stored before. An ended ID must not
        return because the file was removed, replaced by an old copy, or is being written in place.
        """
        if self.path is None:
            return self.table
        stored, decisions = _read_file(self.path)
        table = StatementTable(
            [*stored, *self.table.stored.values()],
            {**self.table.decisions, **decisions},
            follow=self.table.follow,
        )
        is_complete = len(decisions) == len(table.decisions) and len(table.stored) == len(
            {one.statement.slot for one in stored}
        )
        if self._lacking is None and not is_complete:
            self._lacking = KeyStatementsError(f"{self.path} lacks stored statements or decisions")
            logger.error(
                "%s, which still count and are written again; stop this node to remove them",
                self._lacking,
                extra={"event": "identity.file-incomplete"},
            )
        return table


def read_table(path: PathLike, *, follow: bool = True) -> StatementTable:
    """Return the statements and decisions in a file, without logging them; a missing file is empty.

    Raises:
        KeyStatementsError: the file cannot be read, or a line is malformed; the error names the
            line.
    """
    stored, decisions = _read_file(Path(path))
    return StatementTable(stored, decisions, follow=follow)


def _read_file(path: Path) -> tuple[list[StoredStatement], dict[NodeId, Decision]]:
    data, _ = read_file(path, MAX_FILE_SIZE, KeyStatementsError)
    return read_lines(data, path)


def _log_changes(before: StatementTable, table: StatementTable) -> None:
    for origin in table.origins:
        if not before.has_ended(origin):
            logger.warning(
                "the node ID %s has ended: its owner's statement is stored",
                origin,
                extra={"event": "identity.ended", "peer": origin},
            )
        _log_successor(before, table, origin)


def _log_successor(before: StatementTable, table: StatementTable, origin: NodeId) -> None:
    """Log what is new about the successor of an ended ID."""
    was, outcome = outcome_of(before, origin), outcome_of(table, origin)
    successor = table.successor_of(origin)
    if successor is not None:
        if before.successor_of(origin) != successor:
            logger.warning(
                "%s is the successor of %s",
                successor,
                origin,
                extra={"event": "identity.succeeded", "peer": successor, "ended": origin},
            )
    elif outcome is Outcome.CONFLICT and was is not outcome:
        logger.error(
            "the node ID %s has ended: %s; %s",
            origin,
            describe_claims(table, origin),
            describe_end(table, origin).mend,
            extra={"event": "identity.conflict", "peer": origin},
        )
    elif outcome is Outcome.QUESTION and (
        len(table.successions_of(origin)) > len(before.successions_of(origin))
    ):
        logger.warning(
            "the node ID %s has ended: %s; %s",
            origin,
            describe_claims(table, origin),
            describe_end(table, origin).mend,
            extra={"event": "identity.question", "peer": origin},
        )


def format_lines(table: StatementTable) -> bytes:
    """Return the lines of a file with the statements and decisions of a table."""
    lines = [
        f"statement {base64.b64encode(one.statement.encoded).decode()} {utc_text(one.time)}\n"
        for one in table.stored.values()
    ]
    lines += [
        f"decision {origin} {one.successor or _NONE} {utc_text(one.time)}\n"
        for origin, one in table.decisions.items()
    ]
    return "".join(lines).encode("ascii")


def read_lines(data: bytes, path: Path) -> tuple[list[StoredStatement], dict[NodeId, Decision]]:
    """Parse the content of the file at `path`, without verifying its statements.

    Raises:
        KeyStatementsError: a line is malformed; the error names it.
    """
    stored: list[StoredStatement] = []
    decisions: dict[NodeId, Decision] = {}
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], 1):
        try:
            fields = raw.decode("ascii").split(" ")
            if fields[0] == "statement" and len(fields) == 3:
                statement = Statement.parse(base64.b64decode(fields[1], validate=True))
                stored.append(StoredStatement(statement, _time(fields[2])))
            elif fields[0] == "decision" and len(fields) == 4:
                successor = None if fields[2] == _NONE else NodeId.parse(fields[2])
                decisions[NodeId.parse(fields[1])] = Decision(successor, _time(fields[3]))
            else:
                raise KeyStatementsError(
                    "expected `statement BASE64 TIME`, or `decision ID ID-or-none TIME`"
                )
        except (KeyStatementsError, StatementError, IdentityError) as error:
            raise KeyStatementsError(f"{path}, line {number}: {error}") from error
        except (UnicodeDecodeError, binascii.Error) as error:
            raise KeyStatementsError(f"{path}, line {number}: not ASCII or not base64") from error
    return stored, decisions


def _time(text: str) -> datetime:
    return read_utc(text, "time", KeyStatementsError)
