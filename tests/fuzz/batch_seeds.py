"""The seeds of target `batch`, and Batches in the seeds of other targets, all from batch.json."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.fuzz.script import Kind, Step, serialise
from tests.reference.batches import batch_of
from tests.reference.wire import TYPES, Event, cells_payload, parse_raw
from tests.vectors.load import read, unhex

# A setting of small limits, in which the peer's first stream is this one.
SETTING: Final = 3
STREAM: Final = 2
LONGEST: Final = 1_000
EXCHANGES: Final = [one for one in read("batch")["vectors"] if one["kind"] == "rule"]


def batch() -> Iterator[bytes]:
    """Batches, right and wrong, on stream 1 and twice on one with little credit; exchanges."""
    opening = Step(Kind.EVENT, STREAM, 0, *TYPES["Open"], cells_payload(label="x"))
    for vector in read("batch")["vectors"]:
        if vector["kind"] == "batch":
            one = _step({"from": "remote", "raw_event": vector["raw_event"]})
            steps = [opening, one, replace(one, stream=STREAM), replace(one, stream=STREAM)]
        else:
            steps = [_step(step) for step in vector.get("steps", ())]
        script = serialise(step for step in steps if len(step.payload) < LONGEST)
        if script and len(steps) > 1:
            yield bytes([SETTING]) + script


def together(steps: Sequence[Step]) -> Step:
    """The events of these steps, which are of one stream, as one."""
    run = batch_of(
        [
            Event(one.stream, one.async_id, one.category, one.subcategory, one.payload)
            for one in steps
        ]
    )
    return Step(Kind.EVENT, run.stream, 0, *run.type, run.payload)


def _step(step: Mapping[str, Any]) -> Step:
    """A step of an exchange: a Batch, another event, or a Reset of our own side's."""
    event = parse_raw(unhex(step["raw_event"]))
    if step["from"] == "local":
        return Step(Kind.ACTION, STREAM, subcategory=1)
    kind = Kind.SEALED if event.type == TYPES["Batch"] else Kind.EVENT
    return Step(kind, event.stream, event.async_id, *event.type, event.payload)
