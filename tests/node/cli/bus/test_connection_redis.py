"""`parley bus` on a Redis: what does not read as of a file."""

import pytest

from tests.node.cli.conftest import NAME, Parley, Publish, said

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_all_commands(parley: Parley, redis_url: str, publish: Publish, loop: str) -> None:
    name, options = f"{NAME}-{loop}", ("--loop", loop, "--json")
    ids = publish(3, name, redis_url)

    def run(command: str, *args: str, code: int = 0) -> list[dict[str, object]]:
        words = command.split()
        done = parley("bus", *words, redis_url, name, *args, *options)
        assert (done.code, done.err) == (code, ""), done
        return done.lines

    group = ("--group", "mailer")
    assert [line.get("id") for line in run("tail")] == [*ids, None]
    assert len(run("consume", *group, "--count", "2", "--batch", "2")) == 3
    (behind, _) = run("groups", *group, "--max", "0", code=7)
    assert {behind["lag"], behind["pending"]} == {0, 1}
    assert run("groups")[0]["group"] == "mailer"
    fails = ("--exec", "false", "--max-attempts", "1", "--retry-delay", "0s", "--count", "1")
    assert run("consume", *group, *fails)[-1]["failed"] == 1
    assert run("dlq list")[0]["event_id"] == ids[2]
    assert run("dlq replay", "--all")[-1]["replayed"] == 1
    (event, _) = run("consume", *group, "--count", "1")
    assert event["id"] == ids[2]
    run("replay", *group, "--start", ids[1])
    assert len(run("consume", *group, "--count", "2")) == 3
    assert run("trim", "--max-length", "1")[-1]["removed"] == 2
    everything = parley("bus", "groups", redis_url, *options)
    assert name in [line["name"] for line in said(everything, "stream")]


def test_nobody_answers(parley: Parley) -> None:
    done = parley("bus", "publish", "redis://127.0.0.1:1/0?timeout=0.2", NAME, "--json")
    assert (done.code, done.last["name"]) == (3, "unreachable")
