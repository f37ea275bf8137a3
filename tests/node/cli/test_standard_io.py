"""Standard input line by line, and output that waits, over real pipes and files."""

import os
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from parley._node.cli.standard_io import PacedOutput, read_batches, read_lines, stdin_descriptor
from parley._node.errors import FileError

pytestmark = pytest.mark.anyio

PATIENCE = 10.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue  # the test closed it


async def all_lines(descriptor: int, limit: int = 100) -> list[bytes]:
    with anyio.fail_after(PATIENCE):
        async with aclosing(read_lines(descriptor, limit)) as lines:
            return [line async for line in lines]


CASES = [
    (b"", []),
    (b"\n", [b""]),
    (b"a", [b"a"]),
    (b"a\n", [b"a"]),
    (b"a\n\nb", [b"a", b"", b"b"]),
    (b"a\r\nb\x0cc\x85\n", [b"a\r", b"b\x0cc\x85"]),
    ("é ✓\n".encode(), ["é ✓".encode()]),
    (b"\xff\x00\n", [b"\xff\x00"]),
]


@pytest.mark.parametrize(("data", "lines"), CASES)
async def test_lines_of_a_pipe(
    anyio_backend: str, pipe: tuple[int, int], data: bytes, lines: list[bytes]
) -> None:
    async def write() -> None:
        for byte in data:
            os.write(pipe[1], bytes([byte]))
            await anyio.lowlevel.checkpoint()
        os.close(pipe[1])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        assert await all_lines(pipe[0]) == lines


@pytest.mark.parametrize(("data", "lines"), CASES)
async def test_lines_of_a_file(
    anyio_backend: str, tmp_path: Path, data: bytes, lines: list[bytes]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert await all_lines(file.fileno()) == lines


async def test_many_lines_of_a_file(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    expected = [str(number).encode() for number in range(50_000)]
    path.write_bytes(b"\n".join(expected))
    with path.open("rb") as file:
        assert await all_lines(file.fileno()) == expected


async def test_waiting_for_a_line_can_be_cancelled(
    anyio_backend: str, pipe: tuple[int, int]
) -> None:
    with anyio.move_on_after(0.05) as scope:
        await all_lines(pipe[0])
    assert scope.cancelled_caught
    os.write(pipe[1], b"later\n")
    os.close(pipe[1])
    assert await all_lines(pipe[0]) == [b"later"]  # no other task has read it


@pytest.mark.parametrize("data", [b"ok\n" + b"x" * 101, b"ok\n" + b"x" * 101 + b"\n"])
async def test_a_line_too_long(anyio_backend: str, pipe: tuple[int, int], data: bytes) -> None:
    os.write(pipe[1], data)
    async with aclosing(read_lines(pipe[0], 100)) as lines:
        assert await anext(lines) == b"ok"
        with pytest.raises(FileError, match="line 2: it is longer than 100 bytes"):
            await anext(lines)


async def test_what_cannot_be_read(anyio_backend: str, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(FileError, match="cannot read standard input"):
            await all_lines(directory)
    finally:
        os.close(directory)


def test_no_input_is_a_file_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(FileError, match="closed"):
        stdin_descriptor()


async def test_a_full_pipe_is_waited_for(anyio_backend: str, pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    with os.fdopen(pipe[1], "w", closefd=False) as file:
        pace = PacedOutput(file)
        await pace.writable()
        try:
            while True:
                os.write(pipe[1], bytes(4_096))
        except BlockingIOError:
            pass
        with anyio.move_on_after(0.05) as scope:
            await pace.writable()
        assert scope.cancelled_caught
        os.read(pipe[0], 2**20)
        with anyio.fail_after(PATIENCE):
            await pace.writable()


async def test_memory_and_files_are_always_ready(anyio_backend: str, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        for output in (None, sys.stdout, file):
            with anyio.fail_after(PATIENCE):
                await PacedOutput(output).writable()


async def test_a_long_line_is_printed_whole_into_a_pipe_that_is_read_slowly(
    anyio_backend: str, pipe: tuple[int, int]
) -> None:
    text = "".join(f"{number} é\n" for number in range(40_000))
    with os.fdopen(pipe[1], "w", closefd=False, encoding="utf-8") as file:
        pace = PacedOutput(file)
        received = bytearray()
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pace.print, text)
                while len(received) < len(text.encode()):
                    await anyio.wait_readable(pipe[0])
                    received += os.read(pipe[0], 5_000)
        assert os.get_blocking(pipe[1])
    assert received.decode() == text


async def test_what_several_tasks_print_comes_one_after_the_other(
    anyio_backend: str, pipe: tuple[int, int]
) -> None:
    size = 300_000  # more than a pipe holds
    with os.fdopen(pipe[1], "w", closefd=False, encoding="utf-8") as file:
        pace, received = PacedOutput(file), bytearray()
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for letter in "abc":
                    tasks.start_soon(pace.print, letter * size)
                while len(received) < 3 * size:
                    await anyio.wait_readable(pipe[0])
                    received += os.read(pipe[0], 65_536)
    parts = {received[start : start + size].decode() for start in range(0, 3 * size, size)}
    assert parts == {letter * size for letter in "abc"}


async def test_printing_waits_where_it_can_be_cancelled(
    anyio_backend: str, pipe: tuple[int, int]
) -> None:
    with os.fdopen(pipe[1], "w", closefd=False) as file:
        with anyio.move_on_after(0.05) as scope:
            await PacedOutput(file).print("x" * 2**20)
    assert scope.cancelled_caught


async def test_printing_tells_that_nobody_reads(anyio_backend: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file, pytest.raises(BrokenPipeError):
        await PacedOutput(file).print("x")


async def test_lines_that_are_there_come_at_once(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    found = []
    with anyio.fail_after(PATIENCE):
        async with aclosing(read_batches(reading, 100)) as batches:
            os.write(writing, b"a\nb\n\nc")
            found.append(await anext(batches))
            os.write(writing, b"d\n")
            found.append(await anext(batches))
            os.write(writing, b"e\n" + bytes(101) + b"\nf\n")
            found.append(await anext(batches))
            with pytest.raises(FileError, match="line 6: it is longer than 100 bytes"):
                await anext(batches)
    assert found == [[b"a", b"b", b""], [b"cd"], [b"e"]]
