"""Tests of a model of resumption in every reachable state: no byte is lost, duplicated or moved."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.node.protocol import resume_model
from tests.node.protocol.resume_model import Broken, Model, Side, search

# Bytes there and back, cuts, copied Resumes: first the cases of every run, then all of them.
FEW = [(2, 2, 1, 0), (6, 0, 1, 1), (0, 6, 1, 1)]
ALL = [(2, 2, 1, 1), (3, 3, 1, 1), (2, 2, 2, 0), (12, 0, 3, 0), (0, 12, 3, 0), (6, 0, 3, 1)]
ALL += [(0, 6, 3, 1)]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("closes", [False, True])
def test_no_byte_is_lost_doubled_or_moved(closes: bool, every_cut: bool) -> None:
    for there, back, cuts, copies in ALL if every_cut else FEW:
        if closes and not back:
            continue
        # Each side may acknowledge as often as it is cut if both have much to send.
        tells = cuts if there and back else 1
        model = Model(there, back, cuts=cuts, copies=copies, closes=closes, tells=tells)
        states, ends = search(model)
        print(f"{(there, back, cuts, copies, closes)}: {states:,} states, {ends:,} ends")
        assert states > 1_000
        assert ends


def _told_by_resume(side: Side, place: int, other: Side) -> Side:
    """Compare the position in Received with the position in a Resume."""
    told = other.written[place]
    if 0 <= told < side.told:
        raise Broken("it falls")
    return TAKE(side, place, other)


TAKE: Callable[[Side, int, Side], Side] = resume_model.take


@pytest.mark.parametrize(
    "fault", [{"taken": 1}, {"next": 1}, {"told": 1}], ids=["taken", "next", "told"]
)
def test_the_model_sees_what_is_wrong(fault: dict[str, int], monkeypatch: Any) -> None:
    write = Model.write

    def wrong(self: Model, world: Any, initiator: bool, side: Side) -> Any:
        after = write(self, world, initiator, side)
        if world.cuts or initiator:
            return after
        more = {name: getattr(after.responder, name) + 1 for name in fault}
        return after._replace(responder=after.responder._replace(**more))

    monkeypatch.setattr(Model, "write", wrong)
    with pytest.raises(Broken):
        search(Model(2, 2, cuts=1, copies=0, closes=False, tells=1))


def test_a_received_from_before_a_cut_comes_after_a_resume_that_told_more(monkeypatch: Any) -> None:
    monkeypatch.setattr(resume_model, "take", _told_by_resume)
    with pytest.raises(Broken, match="falls"):
        search(Model(2, 2, cuts=1, copies=0, closes=False, tells=1))
