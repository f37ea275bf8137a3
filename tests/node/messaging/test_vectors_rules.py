"""rules.json, and the rules of batch.json: exchanges on an open connection, step by step.

The answers to malformed payloads are those of docs/protocol/events.toml.
"""

from collections.abc import Mapping
from typing import Any, Final

from docs.events_table import number_of, table
from parley._node.protocol.codes import NAMED
from tests.node.messaging.exchange import follow
from tests.sweep import sweep
from tests.vectors.load import Vector, of_kind, vectors

MALFORMED_CODE: Final = 23
# After the handshake, without the events that need a tunnel, a bus or an account.
MALFORMED: Final = [
    event
    for event in table()["event"]
    if not event.get("unencrypted") and event["name"] not in ("Proof", "Data")
    if number_of(event)[0] <= NAMED
]


@vectors("rules")
def test_a_rule(vector: Vector) -> None:
    follow(vector)


@vectors("batch", of_kind("rule"))
def test_a_rule_of_batches(vector: Vector) -> None:
    follow(vector)


def step(stream: int, async_id: int, category: int, subcategory: int, payload: str) -> Vector:
    raw = f"{stream:08x}{async_id:04x}{category:02x}{subcategory:02x}{payload}"
    return {"from": "remote", "raw_event": raw}


@sweep("event", MALFORMED, ids=lambda event: event["type"])
def test_the_answer_to_a_malformed_payload(event: Mapping[str, Any]) -> None:
    category, subcategory = number_of(event)
    stream = {"0": 0, "1..": 1, "2..": 2}[event["stream"]]
    before = [step(2, 0, 2, 1, "a1136178")] if event["name"] == "Finish" else []  # Open
    answer, _, rest = event["malformed"].partition(f" {MALFORMED_CODE}; ")
    for async_id in (0, 7):
        vector: dict[str, Any] = {
            "steps": [*before, step(stream, async_id, category, subcategory, "ff")]
        }
        if answer == "`protocol-error`":
            vector["fails"] = "protocol-error"
        elif rest and async_id:
            cells = {"code": MALFORMED_CODE}
            told = {"event": answer, "stream": 1, "async_id": async_id, "cells": cells}
            vector["expected"] = {"sent": [told]}
        else:
            assert rest in ("", "with async id 0 dropped and counted")
            vector["expected"] = {"sent": []}
        follow(vector)
