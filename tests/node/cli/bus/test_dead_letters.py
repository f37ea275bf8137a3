"""`parley bus replay`, `trim` and `dlq`: reading again, throwing away, and what died."""

import pytest

from parley._node.bus.bus import Bus
from tests.node.cli.conftest import NAME, Parley, Publish, said

GROUP = ("--group", "mailer")


def consumed(parley: Parley, bus: str, *args: str) -> list[int]:
    done = parley("bus", "consume", bus, NAME, *GROUP, "--idle", "0.1s", "--json", *args)
    assert done.code == 0
    return [line["data"]["n"] for line in said(done, "event")]


def letters(parley: Parley, bus: str, *args: str) -> list[str]:
    done = parley("bus", "dlq", "list", bus, NAME, "--json", *args)
    found = said(done, "dead-letter")
    assert done.last == {"event": "done", "count": len(found)}
    return [letter["id"] for letter in found]


@pytest.fixture
def dead(parley: Parley, bus: str, publish: Publish) -> list[str]:
    """Three events that died; the ids of their dead letters."""
    publish(3)
    assert consumed(parley, bus, "--exec", "false", "--max-attempts", "1", "--retry-delay", "0s")
    ids = letters(parley, bus)
    assert len(ids) == 3
    return ids


def test_a_group_reads_again(parley: Parley, bus: str, publish: Publish) -> None:
    ids = publish(3)
    assert consumed(parley, bus) == [1, 2, 3]
    done = parley("bus", "replay", bus, NAME, *GROUP, "--start", ids[1])
    assert (done.code, done.out) == (0, f"mailer continues {NAME} from {ids[1]}\n")
    assert consumed(parley, bus) == [2, 3]
    assert parley("bus", "replay", bus, NAME, *GROUP, "--start", "1h", "--json").last == {
        "event": "done",
        "name": NAME,
        "group": "mailer",
        "start": "1h",
    }
    assert consumed(parley, bus) == [1, 2, 3]


@pytest.mark.parametrize(("name", "group"), [("shop.orderd", "mailer"), (NAME, "mailr")])
def test_a_mistyped_name_makes_no_group(
    parley: Parley, bus: str, publish: Publish, name: str, group: str
) -> None:
    publish(1)
    assert consumed(parley, bus) == [1]
    done = parley("bus", "replay", bus, name, "--group", group, "--start", "first")
    assert (done.code, done.err) == (
        1,
        f"parley: cannot find the group {group!r} of {name}; list all with: parley bus groups "
        f"BUS {name}\n",
    )
    streams = said(parley("bus", "groups", bus, "--json"), "stream")
    assert [one["name"] for one in streams] == [NAME]
    assert parley("bus", "groups", bus, "--json").last["groups"] == 1


@pytest.mark.process
@pytest.mark.parametrize("how", ["--all", "--group", "ids"])
def test_dead_letters_are_dropped_together(
    parley: Parley, bus: str, dead: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked: list[object] = []

    async def drop_dead(bus: Bus, name: str, ids: list[str] | None = None) -> int:
        asked.append(ids)
        return await real(bus, name, ids)

    monkeypatch.setattr("parley._node.cli.bus.dead_letters.AT_ONCE", 2)
    real = Bus.drop_dead
    monkeypatch.setattr(Bus, "drop_dead", drop_dead)
    args = {"--all": ["--all"], "--group": GROUP, "ids": dead}[how]
    assert parley("bus", "dlq", "drop", bus, NAME, *args, "--json").last["dropped"] == 3
    assert asked == [dead[:2], dead[2:]]
    assert letters(parley, bus) == []


def test_trim(parley: Parley, bus: str, publish: Publish) -> None:
    ids = publish(9)
    left = 9
    for option, gone in (
        (("--max-length", "8"), 1),
        (("--max-age", "1h"), 0),
        (("--before", ids[3]), 2),
        (("--before", "1h"), 0),
        (("--max-bytes", "1GB", "--max-length", "4"), 2),
        (("--max-bytes", "0B"), 4),
    ):
        done = parley("bus", "trim", bus, NAME, *option, "--json")
        assert (done.code, done.last) == (0, {"event": "done", "removed": gone}), option
        left -= gone
        assert parley("bus", "tail", bus, NAME, "--json").last["count"] == left
    publish(2)
    assert parley("bus", "trim", bus, NAME, "--max-age", "0s", "--json").last["removed"] == 2


def test_trim_for_people(parley: Parley, bus: str, publish: Publish) -> None:
    publish(2)
    assert parley("bus", "trim", bus, NAME, "--max-length", "1").out == "1 event removed\n"


@pytest.mark.process
def test_what_died_is_shown(parley: Parley, bus: str, dead: list[str]) -> None:
    out = parley("bus", "dlq", "list", bus, NAME, "--count", "1").out
    assert out.startswith(f"{dead[0]}  {NAME} ")
    assert "group     mailer, after 1 attempt" in out
    assert '{"n":1}' in out
    assert "the command exited with 1" in out
    assert dead[1] not in out
    assert letters(parley, bus, *GROUP) == dead
    assert letters(parley, bus, "--group", "audit") == []


@pytest.mark.process
def test_what_died_is_tried_again(parley: Parley, bus: str, dead: list[str]) -> None:
    done = parley("bus", "dlq", "replay", bus, NAME, dead[1])
    assert (done.code, done.out) == (0, "1 dead letter replayed\n")
    assert letters(parley, bus) == [dead[0], dead[2]]
    assert consumed(parley, bus) == [2]
    done = parley("bus", "dlq", "replay", bus, NAME, *GROUP, "--json")
    assert done.last == {"event": "done", "replayed": 2}
    assert sorted(consumed(parley, bus)) == [1, 3]
    assert letters(parley, bus) == []


@pytest.mark.process
def test_what_died_is_dropped(parley: Parley, bus: str, dead: list[str]) -> None:
    done = parley("bus", "dlq", "drop", bus, NAME, dead[0], dead[1])
    assert (done.code, done.out) == (0, "2 dead letters dropped\n")
    assert letters(parley, bus) == dead[2:]
    assert parley("bus", "dlq", "drop", bus, NAME, "--all", "--json").last["dropped"] == 1
    assert consumed(parley, bus) == []


@pytest.mark.process
def test_a_dead_letter_that_is_not_there(parley: Parley, bus: str, dead: list[str]) -> None:
    for verb in ("replay", "drop"):
        done = parley("bus", "dlq", verb, bus, NAME, dead[0], "1-1")
        assert (done.code, done.out.split()[0]) == (1, "1")
        assert done.err == (
            f"parley: cannot find the dead letters 1-1 of {NAME}; list all with: parley bus "
            f"dlq list BUS {NAME}\n"
        )
        dead = dead[1:]
        assert letters(parley, bus) == dead


def test_what_is_not_done(parley: Parley, bus: str, publish: Publish) -> None:
    publish(1)
    for command, args, sentence in (
        ("dlq drop", (), "none is named; give ids, --group or --all"),
        ("dlq replay", ("--all", "1-1"), "cannot use --all with the id '1-1'"),
        ("dlq drop", ("x",), "invalid event ID 'x'"),
        ("trim", (), "no bound is given"),
        ("trim", ("--before", "new"), "invalid --before 'new'"),
        ("trim", ("--before", "2026-01-01"), "the time zone is missing"),
        ("trim", ("--max-age", "7"), "the units are"),
        ("trim", ("--max-bytes", "7"), "the units are"),
        ("replay", GROUP, "--start"),
        ("replay", (*GROUP, "--start", "x"), "invalid --start 'x'"),
        ("replay", ("--start", "first"), "--group"),
    ):
        done = parley("bus", *command.split(), bus, NAME, *args)
        assert (done.code, done.out) == (2, ""), (command, args)
        assert sentence in done.err
    assert parley("bus", "tail", bus, NAME, "--json").last["count"] == 1
