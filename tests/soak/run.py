"""The judge's process: it starts the two nodes, forwards and cuts their traffic, and judges.

All random choices depend on the plan's seed. The two processes only report; `judge` decides.
"""

from collections.abc import Callable
from random import Random  # noqa: TID251  # seeded: when and where it is cut

import anyio

from parley._node.testing import FaultyProxy
from tests.soak import judge
from tests.soak.plan import Plan, Tally
from tests.soak.report import Report
from tests.soak.samples import growth
from tests.soak.side import Side, running

# Seconds until everything must be at rest, and seconds of idleness.
SETTLE = 15.0
IDLE = 2.0

Progress = Callable[[str], None]


async def soak(plan: Plan, progress: Progress) -> Report:
    """Run all phases: load with cuts, rest, a clean end."""
    report = Report(plan)
    async with running("server", plan) as (server, ready):
        async with (
            FaultyProxy(ready["address"]) as proxy,
            running("client", plan, proxy.address) as (client, _),
        ):
            sides = (client, server)
            before = {side.name: await _count(side) for side in sides}
            for side in sides:
                await side.ask("begin")
            await _load(plan, proxy, sides, report, progress)
            progress("resting")
            for side, answer in zip(sides, await _ask_both(sides, "rest"), strict=True):
                if answer["busy"]:
                    report.violations.append(f"{side.name}: at rest still busy: {answer['busy']}")
            report.violations += await _at_rest(sides, report)
            idle = await _idle(sides)
            progress("leaving")
            await _leave(sides, report)
            for side in sides:
                after = await _count(side)
                report.violations += [f"{side.name}: {error}" for error in after["errors"]]
                _judge_usage(side, before[side.name], after, idle[side.name], plan, report)
        _judge_connections(client, server, report)
    return report


async def _load(
    plan: Plan, proxy: FaultyProxy, sides: tuple[Side, Side], report: Report, progress: Progress
) -> None:
    """Run the full load with cuts, and a last part without cuts."""
    random = Random(plan.seed)
    begun = anyio.current_time()
    quiet = plan.seconds - min(3.0, plan.seconds / 2)

    async def cut() -> None:
        while True:
            await anyio.sleep(random.uniform(*plan.cut_pause()))
            report.cuts += 1
            way = random.choice((proxy.to_server, proxy.to_client))
            if random.random() < 0.15:
                proxy.cut()
            else:
                way.cut(after=random.randrange(1, 500_000))

    with anyio.move_on_after(quiet):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut)
            tasks.start_soon(_watch, sides, begun, plan, report, progress)
    proxy.heal()
    with anyio.move_on_after(begun + plan.seconds - anyio.current_time()):
        await _watch(sides, begun, plan, report, progress)
    report.seconds = anyio.current_time() - begun


async def _watch(
    sides: tuple[Side, Side], begun: float, plan: Plan, report: Report, progress: Progress
) -> None:
    while True:
        await anyio.sleep(min(1.0, plan.seconds / 20))
        with anyio.CancelScope(shield=True):  # half an answer would be read as part of the next one
            now = anyio.current_time() - begun
            for side in sides:
                await side.sample(now)
        memory = " ".join(f"{s.name} {s.usage.memory[-1][1] / 2**20:.0f} MiB" for s in sides)
        progress(
            f"{now:6.1f} s  {sides[0].open} open, {len(sides[1].connections)} ended, "
            f"{report.cuts} cuts, {memory}"
        )


async def _at_rest(sides: tuple[Side, Side], report: Report) -> list[str]:
    """Return the violations found when both sides are at rest."""
    found: list[str] = []
    with anyio.move_on_after(SETTLE):
        while True:
            with anyio.CancelScope(shield=True):
                looks = [await side.ask("look") for side in sides]
            found = list(judge.check_rest(*looks))
            report.at_rest = len(looks[0]["connections"])
            report.streams_at_rest = sum(
                len(look["streams"]) for look in looks[0]["connections"].values()
            )
            report.add_writers(looks[1]["published"], looks[0]["published"])
            if not found:
                break
            await anyio.sleep(0.2)
    if not report.at_rest:
        found.append("no connection was left to look at")
    return found


async def _idle(sides: tuple[Side, Side]) -> dict[str, float]:
    """Return the fraction of a core that each process uses while idle."""
    await anyio.sleep(1.0)
    before = [side.usage.cpu_seconds() for side in sides]
    begun = anyio.current_time()
    await anyio.sleep(IDLE)
    seconds = anyio.current_time() - begun
    return {
        side.name: (side.usage.cpu_seconds() - used) / seconds
        for side, used in zip(sides, before, strict=True)
    }


async def _count(side: Side) -> Tally:
    """Return the current numbers of tasks, descriptors and threads."""
    return {**await side.ask("count"), **side.usage.count()}


async def _ask_both(sides: tuple[Side, Side], command: str) -> list[Tally]:
    """Send a command to both processes at once; the client's answer comes first."""
    answers: dict[str, Tally] = {}

    async def ask(side: Side) -> None:
        answers[side.name] = await side.ask(command)

    async with anyio.create_task_group() as both:
        for side in sides:
            both.start_soon(ask, side)
    return [answers[side.name] for side in sides]


async def _leave(sides: tuple[Side, Side], report: Report) -> None:
    answers = await _ask_both(sides, "leave")
    for name, answer in zip((side.name for side in sides), answers, strict=True):
        report.epochs[name] = answer["epochs"]
        report.violations += judge.check_epochs(name, answer["epochs"])
        if answer["left"]:
            report.violations.append(f"{name}: {answer['left']} conversations did not end")


def _judge_usage(
    side: Side, before: Tally, after: Tally, idle: float, plan: Plan, report: Report
) -> None:
    usage = side.usage
    memory = growth(usage.memory)
    report.usage[side.name] = {
        "memory_growth_mib": round(memory.worst / 2**20, 2),
        "memory_mib": [round(memory.first / 2**20, 1), round(memory.last / 2**20, 1)],
        "memory_slope_mib_per_minute": round(memory.rise / max(memory.seconds, 1) * 60 / 2**20, 3),
        "idle_cpu_percent": round(100 * idle, 2),
        "files": [before["files"], usage.most_files, after["files"]],
        "threads": [before["threads"], usage.most_threads, after["threads"]],
        "tasks": [before["tasks"], side.most_tasks, after["tasks"]],
    }
    report.violations += judge.check_usage(side.name, memory, before, after, idle)
    report.violations += judge.check_files(side.name, usage.most_files, before["files"], plan.links)


def _judge_connections(client: Side, server: Side, report: Report) -> None:
    for number in sorted(client.connections.keys() | server.connections.keys()):
        ours, theirs = client.connections.get(number), server.connections.get(number)
        report.violations += judge.check_connection(number, ours, theirs)
        for line in (ours, theirs):
            report.take_connection(line or judge.NOTHING)
    report.connections = len(client.connections)


def run(plan: Plan, progress: Progress) -> Report:
    """Run everything; the judge itself always uses the default event loop."""
    report: list[Report] = []

    async def main() -> None:
        report.append(await soak(plan, progress))

    anyio.run(main, backend="asyncio")
    return report[0]
