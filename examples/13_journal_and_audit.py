"""Record a journal, audit it, alter it, and detect the change.

The node encrypts its journal to an auditor. The seals in the journal prove to the auditor that the
records are complete and unaltered.

Run it with `uv run python examples/13_journal_and_audit.py`.
"""

import tempfile
from collections import Counter
from pathlib import Path

import anyio

from parley import Call, Identity, Node
from parley.journal import (
    EVENT_COLUMNS,
    Audit,
    AuditorPrivateKey,
    Journal,
    encode_record,
    list_segments,
    read_range,
)


async def record(directory: Path, auditor: AuditorPrivateKey) -> None:
    """Run a shop that records a journal. It encrypts the journal to the auditor and cannot read it
    itself.
    """
    shop = Node(Identity.create(), journal=Journal.open(directory, auditor.public))
    async with shop, Node(Identity.create()) as guest:

        @shop.on_call("order")
        async def order(call: Call) -> str:
            return f"a cup of {call.data!s}"

        peer = await guest.connect(await shop.listen("tcp://127.0.0.1:0"))
        for drink in ("tea", "coffee", "cocoa"):
            await peer.call("order", drink)


def check(directory: Path, *auditors: AuditorPrivateKey) -> Audit:
    """Verify all records in a directory. A private key also decrypts their contents."""
    audit = Audit(auditors)
    for segment in list_segments(directory):
        for record in read_range(segment.path, 0, segment.size):
            audit.record(segment.name.stem, record)
    audit.finish_pending()
    return audit


def show(title: str, audit: Audit) -> None:
    rows = [dict(zip(EVENT_COLUMNS, row, strict=True)) for row in audit.take_events()]
    calls = [row for row in rows if row["type"] == "call"]
    statuses = Counter(row["status"] for row in rows)
    named = [f"{finding.kind} at place {finding.place}" for finding in audit.take_findings()]
    print(f"{title}: {len(calls)} calls of {sorted({row['topic'] for row in calls})}")
    print(f"  all events ok: {set(statuses) <= {'ok', 'unsealed'}}; findings: {named or 'none'}")


def alter(directory: Path) -> None:
    """Alter one bit of one event and recompute its checksum, as a dishonest operator could."""
    (segment,) = list_segments(directory)
    records = list(read_range(segment.path, 0, segment.size))
    victim = records[len(records) // 2]
    body = victim.body[:-1] + bytes([victim.body[-1] ^ 1])
    data = bytearray(segment.path.read_bytes())
    data[victim.offset : victim.offset + victim.size] = encode_record(
        victim.kind, victim.time, body
    )
    segment.path.write_bytes(data)


def main() -> None:
    auditor = AuditorPrivateKey.create()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        anyio.run(record, directory, auditor)
        show("with the auditor's key", check(directory, auditor))
        show("without it", check(directory))
        alter(directory)
        show("after one bit was altered", check(directory, auditor))


if __name__ == "__main__":
    main()
