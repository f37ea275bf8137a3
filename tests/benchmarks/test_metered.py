"""What metrics cost: two servers side by side, and a load that goes to one and then the other."""

import pytest
import uvloop

from benchmarks.metered import compare, line, scrape, server

pytestmark = pytest.mark.process


def test_a_row_says_what_calls_cost_with_metrics_and_without() -> None:
    row = uvloop.run(compare(0.05, 2, connections=2, rate=400, together=2))
    assert row["on_us"] > 0
    assert row["off_us"] > 0
    assert row["bounds"][0] <= row["ratio"] <= row["bounds"][1]
    assert row["ratio"] < row["with_scrapes"][15.0] < row["with_scrapes"][1.0]
    assert f"{row['ratio']:.3f} ({row['bounds'][0]:.3f} to" in line(row)


def test_one_server_counts_and_the_other_does_not() -> None:
    uvloop.run(_both())


async def _both() -> None:
    async with server("counted", 1) as counted, server("uncounted", 1) as uncounted:
        for one in (counted, uncounted):
            assert await one.peers[0].call("echo", 1) == 1
        text = await scrape(counted.url)
        assert b'parley_calls_received_total{code="accepted",topic="echo"} 1.0' in text
        assert uncounted.url == ""
