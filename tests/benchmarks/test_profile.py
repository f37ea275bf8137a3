"""The sampler and the layers that it tells apart."""

import inspect
import signal
from importlib.util import find_spec
from time import process_time

import pytest

from benchmarks.profile import LAYERS, layer_of, lines, profile
from benchmarks.rounds import Measurement
from benchmarks.sampler import LOOP, Sampler, function_of
from benchmarks.task import Task
from lbm.codec import decode, encode


def test_a_sampler_sees_what_runs() -> None:
    end = process_time() + 0.2
    with Sampler(active=True) as sampler:
        while process_time() < end:
            decode(encode({1: bytes(100)}))
    assert sum(sampler.samples.values()) > 2
    assert any(layer_of(name) == LAYERS["lbm"] for name in sampler.samples)
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0


def test_who_is_not_asked_samples_nothing() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with Sampler(active=False) as sampler:
        assert signal.getsignal(signal.SIGPROF) is before
    assert sampler.samples == {}


def test_what_we_do_not_know_counts_for_its_caller() -> None:
    frame = inspect.currentframe()
    assert function_of(None) == LOOP
    name = function_of(frame)
    assert name == LOOP or not name.startswith("tests")


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "loop"])
def test_a_layer_is_of_a_module_that_exists(name: str) -> None:
    assert find_spec(name) is not None


def test_the_longest_prefix_decides() -> None:
    assert layer_of("node.transport.driver:Driver.touch") == LAYERS["node.transport"]
    assert layer_of("node.peer.peer:Peer.call") == LAYERS["node"]
    assert layer_of("loop:") == LAYERS["loop"]
    assert layer_of("elsewhere:f") == "other"


def test_a_profile_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Measurement(
        value=1,
        operations=1,
        client_us=10,
        server_us=4,
        others=0,
        client_samples={
            "lbm.codec:encode": 3,
            "lbm.codec:decode": 1,
            "node.peer.peer:Peer.call": 1,
        },
        server_samples={},
    )
    asked: list[Task] = []

    def measured(side: str, task: Task, *rest: object) -> Measurement:
        asked.append(task)
        return found

    monkeypatch.setattr("benchmarks.profile.measure", measured)
    client, server = profile("note", 1.0)
    assert asked[0].profile
    assert client["layers"] == {LAYERS["lbm"]: 8.0, LAYERS["node"]: 2.0}
    assert list(client["functions"].values()) == [6.0, 2.0, 2.0]
    assert server["layers"] == {}
    assert lines(client, 1)[1:] == [
        f"      8.000  80.0%  {LAYERS['lbm']}",
        f"      2.000  20.0%  {LAYERS['node']}",
        "      6.000  60.0%  lbm.codec:encode",
    ]
