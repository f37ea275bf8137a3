"""Limits of the labels, secrets and payloads that an audit processes, each exceeded."""

from dataclasses import replace
from typing import Any

import pytest

from parley._crypto.ciphers import XChaCha20Poly1305
from parley._crypto.key_schedule import application_secrets, next_secret
from parley._lbm.codec import encode
from parley._node.journal import keys
from parley._node.journal.audit import content as labels
from parley._node.journal.audit import keyring, session
from parley._node.journal.audit.consistency import suite_of
from parley._node.journal.audit.content import LONGEST_TOPIC
from parley._node.journal.audit.keyring import BoxOpener, Keyring, labels_key
from parley._node.journal.record_types import Checkpoint, Generation, Secret, SessionStart
from parley._node.journal.records import Record
from tests.node.journal.audit.audit_helpers import SUITE, Audited, events_in, first_of, put
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, records_of

# Labels.


@pytest.mark.pure  # It replaces a constant of the core.
def test_number_of_labels_is_bounded_and_the_newest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(labels, "MAX_LABELS", 4)
    made = RecordedPair()
    streams = [made.pair.a.core.open_stream(f"topic:t{number}") for number in range(10)]
    for stream in streams:
        made.pair.a.core.send(stream, 0, 64, 1, b"x", lbm=False)
    made.run(0.05)
    made.end()
    audited = Audited(records_of(made.journals[1].segments))
    assert audited.findings == []
    assert set(audited.statuses) == {"ok"}
    assert audited.labels == 4
    topics = [row.topic for row in audited.rows if row.content.type == "application"]
    assert topics == [None] * 6 + ["t6", "t7", "t8", "t9"]
    # The row of an opened stream has its label.
    assert {row.topic for row in audited.rows if row.content.type == "open"} == {
        f"t{number}" for number in range(10)
    }


def from_its_checkpoint(labels: list[list[Any]]) -> Audited:
    """Audit Alice's journal from its second segment on, which begins with these labels."""
    made = RecordedPair()
    made.pair.b.core.send(1, 0, 64, 1, b"before", lbm=False)
    made.run(0.05)
    made.journals[0].next_segment()
    for _ in range(3):
        made.pair.b.core.send(1, 0, 64, 1, b"after", lbm=False)
    made.run(0.05)
    made.end()
    second = dict(list(made.journals[0].segments.items())[1:])
    return Audited([(stem, with_labels(labels, record)) for stem, record in records_of(second)])


def with_labels(labels: list[list[Any]], record: Record) -> Record:
    """Replace the labels, as an owner of the node's keys could."""
    if record.kind != keys.CHECKPOINT:
        return record
    point = Checkpoint.parse(record.body)
    suite, session_id = suite_of(point.facts), point.facts.session_id
    secret = AUDITOR.open(point.generations[0].boxes[0][1])
    exporter = application_secrets(suite.hash_algorithm, secret, point.th2).exporter
    key = XChaCha20Poly1305(labels_key(suite, exporter, session_id))
    box = key.encrypt(bytes(24), encode({keys.LABEL_LIST: labels}), session_id)
    return record._replace(body=replace(point, labels=bytes(24) + box).encode())


def test_label_of_a_checkpoint_is_shortened_in_rows() -> None:
    topics = [row.topic for row in from_its_checkpoint([[1, "topic:" + "x" * 2**20]]).rows]
    assert "x" * LONGEST_TOPIC in topics
    assert max(len(topic or "") for topic in topics) <= LONGEST_TOPIC


@pytest.mark.pure  # It replaces a constant of the core.
def test_a_checkpoint_has_no_more_labels_than_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABELS", 4)
    audited = from_its_checkpoint([[stream, f"topic:t{stream}"] for stream in range(1, 20)])
    assert audited.findings == []
    assert set(audited.statuses) == {"ok"}
    assert audited.labels <= 4


@pytest.mark.parametrize("name", ["address", "local_role", "remote_role"])
def test_texts_of_a_start_are_shortened_in_rows(name: str) -> None:
    made = RecordedPair()
    for _ in range(20):
        made.pair.a.core.update_keys(made.pair.now)
        made.pump()
    made.end()
    records = records_of(made.journals[1].segments)
    at = first_of(records, keys.SESSION_START)
    start = SessionStart.parse(records[at][1].body)
    facts = replace(start.facts, **{name: "x" * 2**16})  # type: ignore[arg-type] # one of texts
    reported = Audited(put(records, at, body=replace(start, facts=facts).encode())).sessions
    assert sum(len(getattr(row, name)) for row in reported) < 2 * 2**16


# Secrets.


@pytest.mark.pure  # It replaces a constant of the core.
def test_forgotten_secrets_are_reopened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyring, "_KEPT_SECRETS", 3)
    boxes = BoxOpener((AUDITOR,))
    sealed = [
        Generation(0, ((bytes(AUDITOR.public), AUDITOR.public.seal(bytes([number]) * 32)),))
        for number in range(10)
    ]
    for _ in "ab":
        for number, generation in enumerate(sealed):
            assert boxes.open(generation) == bytes([number]) * 32
            assert len(boxes._opened) <= 3


def a_keyring(generations: int) -> Keyring:
    made = Keyring(BoxOpener((AUDITOR,)), SUITE, b"", b"", b"", bytes(32))
    made.epochs = {number: (bytes([number]) * 32, b"\xff" * 32) for number in range(generations)}
    return made


def test_forgotten_epochs_are_rederived() -> None:
    made = a_keyring(3 * keyring.KEPT_EPOCHS)
    for _ in "ab":
        for number in range(3 * keyring.KEPT_EPOCHS):
            wanted = next_secret(SUITE.hash_algorithm, bytes([number]) * 32)
            assert made.secret(number, 1, initiator=True) == wanted
            assert len(made.last) <= keyring.KEPT_EPOCHS


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record the secrets from which others are derived."""
    seen: list[bytes] = []

    def noted(hash: Any, secret: bytes) -> bytes:
        seen.append(secret)
        return next_secret(hash, secret)

    monkeypatch.setattr(keyring, "next_secret", noted)
    return seen


@pytest.mark.pure  # It replaces a function of the core.
def test_generation_with_too_many_updates_has_no_key(derived: list[bytes]) -> None:
    made = a_keyring(1)
    for said in (keyring.MOST_UPDATES + 1, 2**48 - 1):
        assert made.secret(0, said, initiator=True) is None
    assert not derived


@pytest.mark.pure  # It replaces a function of the core.
def test_checkpoints_of_earlier_epochs_do_not_rederive_all_secrets(derived: list[bytes]) -> None:
    most = keyring.MOST_UPDATES
    made, plain = a_keyring(1), a_keyring(1)
    wanted = {said: plain.secret(0, said, initiator=True) for said in (most - 1, most)}
    derived.clear()
    for said in (most, most - 1) * 5:
        assert made.secret(0, said, initiator=True) == wanted[said]
    assert len(derived) <= most + 10 * keyring.STEP
    assert len(made.steps[0, True]) == most // keyring.STEP + 1
    # A forgotten generation is forgotten completely.
    for number in range(1, 2 * keyring.KEPT_EPOCHS):
        made.secret(number, 1, initiator=True)
    assert len(made.steps) <= keyring.KEPT_EPOCHS


@pytest.mark.pure  # It replaces a constant of the core.
def test_events_under_too_many_updates_are_undecryptable_and_all_are_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = RecordedPair()
    for number in range(8):
        made.pair.a.core.update_keys(made.pair.now)
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
    made.run(0.05)
    made.end()
    records = records_of(made.journals[1].segments)
    assert set(Audited(records).statuses) == {"ok"}
    monkeypatch.setattr(keyring, "MOST_UPDATES", 3)
    audited = Audited(records)
    assert len(audited.rows) == events_in(records)
    assert set(audited.statuses) == {"ok", "undecryptable"}
    # The finding names the events, and accuses neither side of a Close that could not be read.
    (finding,) = audited.findings
    closed = [row for row in audited.rows if row.status == "undecryptable"]
    assert (finding.kind, finding.count) == ("undecryptable", len(closed))
    assert (finding.place, finding.offset) == (closed[0].place, closed[0].offset)
    assert f"place {closed[0].place} to {closed[-1].place}" in finding.evidence
    assert "key updates" in finding.evidence
    # The events of the first three updates have content.
    read = [row for row in audited.rows if row.content.type == "application"]
    assert [row.payload for row in read] == [b"0", b"1", b"2"]


def test_boxes_of_missing_rekeys_evict_others_without_losing_events() -> None:
    made = RecordedPair()
    made.pair.a.core.rekey(made.pair.now)
    made.pump()
    made.run(0.05)
    made.pair.a.core.send(1, 0, 64, 1, b"after", lbm=False)
    made.run(0.05)
    made.end()
    records = records_of(made.journals[1].segments)
    assert set(Audited(records).statuses) == {"ok"}
    at = next(
        index
        for index, (_, one) in enumerate(records)
        if one.kind == keys.SECRET and Secret.parse(one.body).generation == 1
    )
    stem, record = records[at]
    reported = Secret.parse(record.body)
    more = [
        (stem, record._replace(body=Secret(reported.session, number, reported.boxes).encode()))
        for number in range(2, 2 + session.WAITING_BOXES)
    ]
    few = Audited([*records[: at + 1], *more[:-1], *records[at + 1 :]])
    assert set(few.statuses) == {"ok"}
    many = Audited([*records[: at + 1], *more, *records[at + 1 :]])
    assert len(many.rows) == events_in(records)
    evidence = [one.evidence for one in many.findings if one.kind == "undecryptable"]
    assert len(evidence) == 1  # No event was received in the other direction.
    assert all("without the secret of generation 1" in one for one in evidence)
    assert set(many.statuses) == {"ok", "undecryptable"}
