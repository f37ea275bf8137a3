"""Rebuilds the JSON files beside this one from the reference implementation.

`python -m tests.vectors.build` writes them; with `--check` it compares and ends
with 1 where they differ. What the library randomises is kept in recorded.json.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.reference import (
    vectors_accept,
    vectors_batches,
    vectors_bus,
    vectors_codes,
    vectors_connection,
    vectors_events,
    vectors_federation,
    vectors_identity,
    vectors_journal,
    vectors_keys,
    vectors_lbm,
    vectors_resume,
    vectors_rules,
    vectors_seals,
    vectors_statements,
    vectors_topics,
    vectors_wire,
)
from tests.reference.recorded import RECORDS

HERE: Final = Path(__file__).parent
FILES: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "lbm.json": vectors_lbm.lbm_vectors,
    "padding.json": vectors_lbm.padding_vectors,
    "events.json": vectors_wire.event_vectors,
    "seals.json": vectors_seals.seal_vectors,
    "sealed-events.json": vectors_seals.sealed_event_vectors,
    "tables.json": vectors_wire.table_vectors,
    "labels.json": vectors_keys.label_vectors,
    "schedule.json": vectors_keys.schedule_vectors,
    "stream-keys.json": vectors_keys.stream_key_vectors,
    "exchange.json": vectors_keys.exchange_vectors,
    "identity.json": vectors_identity.identity_vectors,
    "handshake.json": vectors_accept.handshake_vectors,
    "payloads.json": vectors_events.payload_vectors,
    "rules.json": vectors_rules.rule_vectors,
    "batch.json": vectors_batches.batch_vectors,
    "connections.json": vectors_connection.connection_vectors,
    "resume.json": vectors_resume.resume_vectors,
    "topics.json": vectors_topics.topic_vectors,
    "bus.json": vectors_bus.bus_vectors,
    "federation.json": vectors_federation.federation_vectors,
    "codes.json": vectors_codes.code_vectors,
    "keys.json": vectors_statements.keys_vectors,
    "journal.json": vectors_journal.journal_vectors,
    "recorded.json": RECORDS.document,  # last: it lists what the others used
}


def rendered(document: dict[str, Any]) -> str:
    """JSON with one vector a line, so that a change shows as one line."""
    vectors = document["vectors"]
    head = {key: value for key, value in document.items() if key != "vectors"}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join("  " + json.dumps(vector) for vector in vectors)
    return "{\n" + "\n".join(lines) + '\n "vectors": [\n' + body + "\n ]\n}\n"


def main(arguments: list[str]) -> int:
    """Writes the files, or with --check names those that differ."""
    differing = []
    for name, produce in FILES.items():
        document = produce()
        names = [vector["name"] for vector in document["vectors"]]
        if len(set(names)) != len(names):
            raise ValueError(f"{name}: two vectors of one name")
        text, path = rendered(document), HERE / name
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            differing.append(name)
    for name in differing:
        print(f"{name} differs from what the reference implementation makes")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
