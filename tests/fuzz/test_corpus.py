"""The corpus as a regression test: every input of it, without the fuzzer.

What a fuzzer found once stays in the corpus, and is taken by its target.
"""

from pathlib import Path

from tests.fuzz.seeds import CORPUS, main
from tests.fuzz.targets import TARGETS, load
from tests.sweep import sweep

INPUTS = sorted(path for target in TARGETS for path in (CORPUS / target).iterdir())


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@sweep("path", INPUTS, ids=name_of, parts=4)
def test_an_input_is_taken(path: Path) -> None:
    target, data = load(path.parent.name), path.read_bytes()
    assert len(data) <= target.max_size
    target.run(data)
    target.run(data)  # No state of the first run remains that could interfere.


@sweep("name", TARGETS)
def test_no_input_at_all_is_taken(name: str) -> None:
    target = load(name)
    for data in (b"", b"\0", bytes(target.max_size), b"\xff" * target.max_size):
        target.run(data)


def test_the_corpus_is_small() -> None:
    counts = {name: len(list((CORPUS / name).iterdir())) for name in TARGETS}
    assert all(20 <= count <= 256 for count in counts.values()), counts
    assert sum(path.stat().st_size for path in INPUTS) < 384 * 1024


def test_seeds_are_what_the_vectors_make() -> None:
    assert main(["--check"]) == 0
