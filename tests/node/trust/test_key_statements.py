"""The file of key statements: what it stores, shares with other processes, and refuses."""

import fcntl
import logging
import os
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley import (
    Identity,
    NodeId,
    Statement,
    create_revocation,
    create_succession,
)
from parley._node.trust.files import LOCK_PAUSE, LOCK_TIMEOUT
from parley._node.trust.key_statements import (
    ABOVE_RATE,
    BRIEF_LOCK_TIMEOUT,
    MAX_FILE_SIZE,
    KeyStatements,
    Offer,
    read_table,
)
from parley._node.trust.statement_table import (
    MAX_UNNAMED,
    IdsOnRecord,
    StatementTable,
    StoredStatement,
)
from parley._node.trust.words import fingerprint
from parley.errors import KeyStatementsError, StatementError

NOW = datetime(2027, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
NAMED = IdsOnRecord(lambda _: True, lambda _: False)
SEEN = IdsOnRecord(lambda _: False, lambda _: True)
UNKNOWN = IdsOnRecord(lambda _: False, lambda _: False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file."""
    return tmp_path / "home" / "key_statements"


def events(caplog: pytest.LogCaptureFixture) -> list[object]:
    """Return the names of logged events."""
    return [getattr(record, "event", None) for record in caplog.records]


def forged(statement: Statement) -> Statement:
    """Return a statement whose last signature is wrong."""
    encoded = bytearray(statement.encoded)
    encoded[encoded.index(statement._signature)] ^= 1
    return Statement.parse(bytes(encoded))


def test_a_file_keeps_statements_and_decisions(path: Path) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    statements = KeyStatements(path)
    assert statements.offer(create_succession(recovery, new).encoded, NAMED, NOW) is Offer.STORED
    assert statements.apply(create_revocation(old).encoded)
    statements.decide(old.node_id, new.node_id)
    assert path.stat().st_mode & 0o777 == 0o600
    kinds = [line.split(" ")[0] for line in path.read_text().splitlines()]
    assert kinds == ["statement", "statement", "decision"]
    again = KeyStatements(path)
    again.refresh()
    assert again.table.stored == statements.table.stored
    assert again.table.decisions == statements.table.decisions
    assert again.table.granted(old.node_id) == new.node_id


def test_without_a_file_they_stay_in_memory() -> None:
    identity, statements = Identity.create(), KeyStatements()
    statements.refresh()
    assert statements.apply(create_revocation(identity).encoded)
    assert statements.table.has_ended(identity.node_id)
    assert statements.stamp() is None


def test_a_statement_parses_the_file_only_if_it_has_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a node with many statements pays more for one than the node that sent it."""
    parsed: list[bytes] = []
    parse = Statement.parse

    def count(encoded: bytes) -> Statement:
        parsed.append(encoded)
        return parse(encoded)

    mine, other = KeyStatements(path), KeyStatements(path)
    some = [create_revocation(Identity.create()) for _ in range(4)]
    mine.offer(some[0].encoded, NAMED, NOW)
    monkeypatch.setattr(Statement, "parse", count)
    mine.offer(some[1].encoded, NAMED, NOW)
    assert parsed == [some[1].encoded]
    other.offer(some[2].encoded, NAMED, NOW)
    assert len(parsed) == 2 + 2
    mine.offer(some[3].encoded, NAMED, NOW)
    assert len(parsed) == 4 + 1 + 3
    assert len(mine.table.stored) == 4


def test_processes_do_not_lose_each_other_s_statements(path: Path) -> None:
    ids = [Identity.create() for _ in range(4)]
    some = [KeyStatements(path), KeyStatements(path)]
    for number, identity in enumerate(ids):
        some[number % 2].offer(create_revocation(identity).encoded, NAMED, NOW)
    for one in some:
        one.refresh()
        assert list(one.table.origins) == [identity.node_id for identity in ids]


def test_each_change_is_reported_once(path: Path) -> None:
    changes: list[int] = []
    statements = KeyStatements(path)
    statements.listeners.append(lambda: changes.append(len(changes)))
    statement = create_revocation(Identity.create())
    statements.refresh()
    assert statements.offer(statement.encoded, NAMED, NOW) is Offer.STORED
    assert statements.offer(statement.encoded, NAMED, NOW) is Offer.KNOWN
    assert not statements.apply(statement.encoded)
    statements.refresh()
    assert len(changes) == 1


def test_what_was_stored_before_is_not_logged_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    statements, other = KeyStatements(path), KeyStatements(path)
    statements.apply(create_revocation(Identity.create()).encoded)
    caplog.clear()
    other.refresh()
    assert events(caplog) == []
    assert len(other.table.origins) == 1
    statements.apply(create_revocation(Identity.create()).encoded)
    caplog.clear()
    other.refresh()
    assert events(caplog) == ["identity.ended"]


def test_a_table_can_be_read_without_following_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not read_table(path).stored
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    statements = KeyStatements(path)
    statements.apply(create_succession(recovery, new).encoded)
    caplog.clear()
    assert read_table(path).stored == statements.table.stored
    assert read_table(path).current(old.node_id) == new.node_id
    assert read_table(path, follow=False).current(old.node_id) is None
    assert events(caplog) == []
    path.write_text("nonsense\n")
    with pytest.raises(KeyStatementsError, match="line 1"):
        read_table(path)


@pytest.mark.parametrize(
    ("records", "expected"),
    [(UNKNOWN, Offer.NOT_ON_RECORD), (NAMED, Offer.STORED), (SEEN, Offer.STORED)],
)
def test_only_statements_about_ids_on_record_are_stored(
    records: IdsOnRecord, expected: Offer
) -> None:
    statements = KeyStatements()
    assert statements.offer(create_revocation(Identity.create()).encoded, records, NOW) is expected
    assert statements.dropped.total() == (expected is Offer.NOT_ON_RECORD)


def test_a_statement_that_is_not_on_record_is_not_verified() -> None:
    wrong = forged(create_revocation(Identity.create()))
    assert KeyStatements().offer(wrong.encoded, UNKNOWN, NOW) is Offer.NOT_ON_RECORD


def test_invalid_statements_are_refused() -> None:
    statements, wrong = KeyStatements(), forged(create_revocation(Identity.create()))
    with pytest.raises(StatementError) as caught:
        statements.offer(wrong.encoded, NAMED, NOW)
    assert caught.value.reason == "signature"
    with pytest.raises(StatementError) as caught:
        statements.apply(wrong.encoded)
    assert caught.value.reason == "signature"
    assert not statements.table.stored
    assert statements.dropped == {"signature": 1}


def test_a_full_table_drops_offers_but_not_what_a_person_applies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    statements = KeyStatements()
    for _ in range(MAX_UNNAMED):
        assert (
            statements.offer(create_revocation(Identity.create()).encoded, SEEN, NOW)
            is Offer.STORED
        )
    caplog.clear()
    last = create_revocation(Identity.create())
    assert statements.offer(last.encoded, SEEN, NOW) is Offer.FULL
    assert events(caplog) == ["identity.statement-dropped"]
    assert statements.apply(last.encoded)
    assert statements.table.has_ended(last.origin)


def test_the_count_of_unnamed_ids_follows_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a table stays full after its IDs got names, until the next statement is stored."""
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_UNNAMED", 4)
    statements, named = KeyStatements(), set[NodeId]()

    def offer() -> Offer:
        records = IdsOnRecord(named.__contains__, lambda _: True)
        return statements.offer(create_revocation(Identity.create()).encoded, records, NOW)

    assert [offer() for _ in range(6)] == [Offer.STORED] * 4 + [Offer.FULL] * 2
    first, second, *_ = statements.table.origins
    named.add(first)
    assert [offer() for _ in range(2)] == [Offer.STORED, Offer.FULL]
    named.add(second)
    named.remove(first)
    assert offer() is Offer.FULL


@pytest.mark.parametrize("leads", [False, True])
def test_a_batch_asks_about_each_id_once(leads: bool) -> None:
    """Otherwise a peer pays less for a Proof or an event than the node that reads it."""
    (root, root_recovery), (last, _) = Identity.create_recoverable(), Identity.create_recoverable()
    stored = []
    for _ in range(MAX_UNNAMED):
        _, recovery = Identity.create_recoverable()
        new = root if leads else Identity.create_recoverable()[0]
        stored.append(StoredStatement(create_succession(recovery, new), NOW))
    statements = KeyStatements()
    statements.table = StatementTable(stored)
    asked: list[NodeId] = []

    def is_named(node_id: NodeId) -> bool:
        asked.append(node_id)
        return False

    others = [create_revocation(Identity.create()) for _ in range(63)]
    batch = [create_succession(root_recovery, last), *others]
    records = IdsOnRecord(is_named, lambda _: True)
    assert {statements.offer(one.encoded, records, NOW) for one in batch} == {Offer.FULL}
    assert len(asked) == len(set(asked)) == MAX_UNNAMED + len(batch)


def test_dropped_statements_are_counted_by_reason() -> None:
    statements, peer = KeyStatements(), Identity.create()
    wrong = forged(create_revocation(Identity.create()))
    with pytest.raises(StatementError):
        statements.offer(wrong.encoded, NAMED, NOW)
    with pytest.raises(StatementError):
        statements.offer(b"x", NAMED, NOW)
    statements.offer_chain([b"x", b"y"], peer.node_id, NAMED, NOW)
    statements.offer(wrong.encoded, UNKNOWN, NOW)
    assert statements.dropped == {"signature": 1, "malformed": 3, "not-on-record": 1}


def test_the_rest_of_a_batch_is_dropped_after_too_many_wrong_signatures() -> None:
    statements, true = KeyStatements(), create_revocation(Identity.create()).encoded
    wrong = forged(create_revocation(Identity.create())).encoded
    goes_on = [False, True]
    failed = statements.offer_all([b"x", wrong, wrong, true, b"x"], NAMED, NOW, goes_on.pop)
    assert failed is not None
    assert failed.reason == "signature"
    assert statements.dropped == {"malformed": 1, "signature": 2, ABOVE_RATE: 2}
    assert statements.offer_all([b"x", wrong, true], NAMED, NOW) is not None
    assert len(statements.table.stored) == 1


def test_statements_cut_off_by_a_conflict_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise strangers fill the table, and the end of a named ID is dropped."""
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_UNNAMED", 8)
    statements, stored = KeyStatements(), 0
    for _ in range(6):
        root, recovery = Identity.create_recoverable()
        records = IdsOnRecord(lambda _: False, root.node_id.__eq__)
        (new, next_recovery), (other, _), (last, _) = (
            Identity.create_recoverable() for _ in range(3)
        )
        for statement in (
            create_succession(recovery, new),
            create_succession(next_recovery, last),
            create_succession(recovery, other),
        ):
            stored += statements.offer(statement.encoded, records, NOW) is Offer.STORED
    assert stored == 8
    assert (
        statements.offer(create_revocation(Identity.create()).encoded, NAMED, NOW) is Offer.STORED
    )


def test_a_listener_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    statements, called = KeyStatements(), list[int]()

    def fail() -> None:
        raise RuntimeError("a bug")

    statements.listeners += [fail, lambda: called.append(1)]
    statements.apply(create_revocation(Identity.create()).encoded)
    assert called == [1]
    assert "identity.listener-failed" in events(caplog)


def test_refused_statements_do_not_hide_that_one_was_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_UNNAMED", 0)
    statements, peer = KeyStatements(), Identity.create().node_id
    for _ in range(200):
        statements.offer_chain([b"x"], peer, SEEN, NOW)
    assert statements.offer(create_revocation(Identity.create()).encoded, SEEN, NOW) is Offer.FULL
    assert "identity.statement-dropped" in events(caplog)


def test_flooding_with_restarts_stays_within_the_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each restart reads the file; the number of seen IDs in it still counts."""
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_UNNAMED", 8)
    stored = 0
    for _ in range(3):
        statements = KeyStatements(path)
        statements.refresh()
        for _ in range(5):
            offered = statements.offer(create_revocation(Identity.create()).encoded, SEEN, NOW)
            stored += offered is Offer.STORED
    assert stored == 8


def test_an_accepted_successor_must_be_stored(path: Path) -> None:
    old, new = Identity.create(), Identity.create()
    statements = KeyStatements(path)
    with pytest.raises(KeyStatementsError, match="no stored statement has ended it"):
        statements.decide(old.node_id, None)
    statements.apply(create_revocation(old).encoded)
    with pytest.raises(KeyStatementsError, match="no stored statement names it"):
        statements.decide(old.node_id, new.node_id)
    statements.decide(old.node_id, None)
    assert statements.table.decisions[old.node_id].successor is None


def test_a_full_disk_does_not_keep_an_id_alive(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    statements, identity = KeyStatements(path), Identity.create()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert statements.offer(create_revocation(identity).encoded, NAMED, NOW) is Offer.STORED
        assert "identity.not-written" in events(caplog)
        assert statements.table.has_ended(identity.node_id)
        statements.refresh()
        assert statements.table.has_ended(identity.node_id)
        with pytest.raises(KeyStatementsError, match="cannot write"):
            statements.apply(create_revocation(Identity.create()).encoded)
        with pytest.raises(KeyStatementsError, match="cannot write"):
            statements.write_again()
    statements.write_again()
    again = KeyStatements(path)
    again.refresh()
    assert again.table.has_ended(identity.node_id)


def test_a_held_lock_delays_only_the_first_statement(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handshakes wait while a statement is stored, but a person can wait longer."""
    slept: list[float] = []
    monkeypatch.setattr("parley._node.trust.files.sleep", slept.append)
    statements = KeyStatements(path)
    some = [create_revocation(Identity.create()) for _ in range(8)]
    path.parent.mkdir()
    with path.with_name("key_statements.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for one in some[:-1]:
            assert statements.offer(one.encoded, NAMED, NOW) is Offer.STORED
            assert statements.table.has_ended(one.origin)
        assert sum(slept) <= BRIEF_LOCK_TIMEOUT + LOCK_PAUSE
        with pytest.raises(KeyStatementsError, match="cannot lock"):
            statements.write_again()
        assert sum(slept) <= 2 * (BRIEF_LOCK_TIMEOUT + LOCK_PAUSE)
        for one in some[-2:]:
            slept.clear()
            with pytest.raises(KeyStatementsError, match="cannot lock"):
                statements.apply(one.encoded)
            assert sum(slept) == pytest.approx(LOCK_TIMEOUT)
    assert not path.exists()
    statements.apply(some[-1].encoded)
    assert read_table(path).stored.keys() == {one.slot for one in some}


def test_a_person_stores_what_was_in_memory_only(path: Path) -> None:
    statements, statement = KeyStatements(path), create_revocation(Identity.create())
    path.mkdir(parents=True)
    assert statements.offer(statement.encoded, NAMED, NOW) is Offer.STORED
    path.rmdir()
    assert not statements.apply(statement.encoded)
    assert read_table(path).has_ended(statement.origin)


@pytest.mark.parametrize("loss", ["missing", "empty", "old copy", "other file", "decision"])
def test_an_ended_id_does_not_return_if_the_file_loses_it(
    path: Path, caplog: pytest.LogCaptureFixture, loss: str
) -> None:
    """An editor or `cp` truncates a file before writing it, and a backup has an old one."""
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    statements, other = KeyStatements(path), create_revocation(Identity.create())
    statements.apply(create_revocation(Identity.create()).encoded)
    copy = path.read_bytes()
    statements.apply(create_succession(recovery, new).encoded)
    statements.decide(old.node_id, new.node_id)
    before = statements.table
    if loss == "missing":
        path.unlink()
    elif loss == "decision":
        path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"decision")])
    else:
        lines = {"empty": b"", "old copy": copy, "other file": f"{line_of(other)}\n".encode()}
        path.write_bytes(lines[loss])
    caplog.clear()
    for _ in range(2):
        statements.refresh()
    assert events(caplog).count("identity.file-incomplete") == 1
    expected = {*before.stored, *((other.slot,) if loss == "other file" else ())}
    assert statements.table.stored.keys() == expected
    assert statements.table.granted(old.node_id) == new.node_id
    statements.write_again()
    assert read_table(path).stored.keys() == expected
    assert read_table(path).decisions == before.decisions
    caplog.clear()
    statements.refresh()
    assert events(caplog) == []


def test_a_change_keeps_what_the_file_has_lost(path: Path) -> None:
    statements = KeyStatements(path)
    some = [create_revocation(Identity.create()) for _ in range(2)]
    statements.apply(some[0].encoded)
    path.unlink()
    assert statements.offer(some[1].encoded, NAMED, NOW) is Offer.STORED
    assert read_table(path).stored.keys() == {one.slot for one in some}


def test_a_later_decision_of_another_process_is_used(path: Path) -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    mine, other = KeyStatements(path), KeyStatements(path)
    mine.apply(create_succession(recovery, new).encoded)
    mine.decide(old.node_id, new.node_id)
    other.decide(old.node_id, None)
    mine.refresh()
    assert mine.table.granted(old.node_id) is None
    assert mine.table.decisions == other.table.decisions


def line_of(statement: Statement, time: str = "2027-01-01T00:00:00Z") -> str:
    """Return the line of a statement."""
    return f"statement {b64encode(statement.encoded).decode()} {time}"


ID = NodeId(bytes(32)).text
SOME = create_revocation(Identity.create())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# a comment",
        "revocation AA== 2027-01-01T00:00:00Z",
        line_of(SOME).rpartition(" ")[0],
        line_of(SOME, "yesterday"),
        line_of(SOME, "2027-01-01T00:00:00"),
        line_of(SOME, "2027-01-01T00:00:00+01:00"),
        line_of(SOME).replace("statement ", "statement *", 1),
        line_of(SOME) + " more",
        "statement AAAA 2027-01-01T00:00:00Z",
        f"decision {ID} 2027-01-01T00:00:00Z",
        f"decision {ID} nobody 2027-01-01T00:00:00Z",
        f"decision {ID.upper()} none 2027-01-01T00:00:00Z",
        "statement \N{LATIN SMALL LETTER E WITH ACUTE} 2027-01-01T00:00:00Z",
    ],
)
def test_a_wrong_line_is_named(path: Path, line: str) -> None:
    path.parent.mkdir()
    path.write_text(f"{line_of(SOME)}\n{line}\n")
    statements = KeyStatements(path)
    with pytest.raises(KeyStatementsError, match="line 2"):
        statements.refresh()
    assert "line 2" in str(statements.error)
    path.write_text(f"{line_of(SOME)}\n")
    statements.refresh()
    assert statements.error is None
    assert statements.table.has_ended(SOME.origin)


def test_a_file_that_became_unreadable_keeps_its_last_state(path: Path) -> None:
    statements = KeyStatements(path)
    statements.apply(SOME.encoded)
    path.unlink()
    path.mkdir()
    for _ in range(2):
        with pytest.raises(KeyStatementsError, match="cannot read"):
            statements.refresh()
    assert statements.table.has_ended(SOME.origin)


def test_a_pipe_and_a_long_file_are_refused(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(KeyStatementsError, match="not a regular file"):
        KeyStatements(path).refresh()
    path.unlink()
    path.write_bytes(b"x" * (MAX_FILE_SIZE + 1))
    with pytest.raises(KeyStatementsError, match="longer than"):
        KeyStatements(path).refresh()


def test_a_file_is_not_written_beyond_its_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = KeyStatements(path)
    for _ in range(2):
        statements.apply(create_revocation(Identity.create()).encoded)
    limit = path.stat().st_size + 1
    monkeypatch.setattr("parley._node.trust.key_statements.MAX_FILE_SIZE", limit)
    with pytest.raises(KeyStatementsError, match="would exceed"):
        statements.apply(create_revocation(Identity.create()).encoded)
    again = KeyStatements(path)
    again.refresh()
    assert again.table.stored == statements.table.stored


def test_ends_successors_conflicts_and_questions_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    (old, recovery), (new, _), (other, _) = (Identity.create_recoverable() for _ in range(3))
    first, second = Identity.create(), Identity.create()
    statements = KeyStatements()
    statements.offer(create_succession(recovery, new).encoded, NAMED, NOW)
    assert events(caplog) == ["identity.ended", "identity.succeeded"]
    caplog.clear()
    statements.offer(create_succession(recovery, other).encoded, NAMED, NOW)
    assert events(caplog) == ["identity.conflict"]
    for one in (new, other):
        assert f"{one.node_id} ({fingerprint(one.node_id)})" in caplog.text
    assert f"run: parley peers accept {old.node_id} --as ID" in caplog.text
    caplog.clear()
    statements.offer(create_revocation(old).encoded, NAMED, NOW)
    assert events(caplog) == []
    statements.offer(create_succession(first, second).encoded, NAMED, NOW)
    assert events(caplog) == ["identity.ended", "identity.question"]
    assert f"which a thief may have, named the successor {second.node_id} (" in caplog.text
    assert "compare the words with its owner over another channel" in caplog.text
    caplog.clear()
    statements.decide(first.node_id, second.node_id)
    assert events(caplog) == ["identity.succeeded"]
