"""How far a stream is, as an offset."""

import json

from parley._node.journal.segments import SegmentName
from parley._pipeline.read_planner import Position, Progress

NODE = "a" * 52
RUN = "20251113T000000000000Z"


def segment(number: int, run: str = RUN) -> SegmentName:
    return SegmentName(NODE, run, number)


def test_an_offset_survives_json() -> None:
    progress = Progress()
    for number in (0, 1, 2, 7, 5):
        progress.finish(segment(number))
    progress.advance(segment(9), Position(1000, 900))
    progress.add_foreign("notes.pjl")
    text = json.dumps(progress.as_offset())
    again = Progress(json.loads(text))
    assert json.dumps(again.as_offset()) == text
    assert again.position(segment(9)) == Position(1000, 900)
    assert [again.is_done(segment(n)) for n in range(9)] == [n in {0, 1, 2, 5, 7} for n in range(9)]
    assert again.foreign == ("notes.pjl",)


def test_done_segments_are_kept_as_ranges() -> None:
    progress = Progress()
    for number in (3, 1, 2, 0, 9, 2):
        progress.finish(segment(number))
    (run,) = progress.as_offset()["runs"].values()
    assert run["done"] == [[0, 3], [9, 9]]


def test_what_was_read_since() -> None:
    start = Progress()
    start.finish(segment(0))
    start.advance(segment(1), Position(500, 400))
    start.advance(segment(2), Position(10, 0))
    end = Progress(start.as_offset())
    assert end.since(start) == []
    end.finish(segment(1))
    end.advance(segment(3), Position(70, 60))
    end.finish(segment(0, "20251114T000000000000Z"))
    assert end.since(start) == [
        (segment(1), Position(500, 400), None),
        (segment(3), Position(), Position(70, 60)),
        (segment(0, "20251114T000000000000Z"), Position(), None),
    ]
