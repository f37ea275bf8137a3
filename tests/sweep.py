"""Sweeps: tests of hundreds of cases. One test runs all of them in a loop, and its failure has the
name and the traceback of each case that failed. `--case TEXT` runs those with TEXT in their name.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import repeat
from typing import Any, Final

import pytest

_PARAM: Final = type(pytest.param())
_wanted: str | None = None


def add_option(parser: pytest.Parser) -> None:
    """Add `--case`."""
    parser.addoption(
        "--case", metavar="TEXT", help="run the cases of sweeps with TEXT in their name"
    )


def configure(config: pytest.Config) -> None:
    """Remember the value of `--case`."""
    global _wanted  # decorated functions get only their fixtures
    _wanted = config.getoption("case")


def sweep(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[str] | None = None,
    parts: int = 1,
) -> Callable[[Callable[..., Any]], Any]:
    """Run a test for all `cases`, with the meaning that `pytest.mark.parametrize` gives to `names`,
    `cases` and `ids`.

    All cases share the fixtures. Processes can share a sweep that is cut into `parts`.
    """
    arguments = [names] if isinstance(names, str) else list(names)
    found = list(_named(arguments, cases, ids))
    if not found:
        raise ValueError(f"the sweep of {names} has no cases")

    def decorate(test: Callable[..., Any]) -> Any:
        @wraps(test)
        def run(sweep_part: int = 0, **fixtures: Any) -> None:
            failures = _Failures()
            for name, values in _chosen(found[sweep_part::parts]):
                with failures.of(name):
                    test(**fixtures, **values)
            failures.end()

        @wraps(test)
        async def run_async(sweep_part: int = 0, **fixtures: Any) -> None:
            failures = _Failures()
            for name, values in _chosen(found[sweep_part::parts]):
                with failures.of(name):
                    await test(**fixtures, **values)
            failures.end()

        made: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in arguments]
        if parts > 1:
            left.append(inspect.Parameter("sweep_part", inspect.Parameter.KEYWORD_ONLY))
            made = pytest.mark.parametrize("sweep_part", range(parts))(made)
        made.__signature__ = signature.replace(parameters=left)
        return made

    return decorate


def _named(
    arguments: list[str], cases: Iterable[Any], ids: Callable[[Any], object] | Iterable[str] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each case's name and arguments."""
    given = repeat(None) if ids is None or callable(ids) else iter(ids)
    for case in cases:
        name: Any = next(given)
        values = [case] if len(arguments) == 1 else case
        if isinstance(case, _PARAM):
            values, marks, name = case
            if marks:
                raise ValueError(f"a case of a sweep cannot have marks: {case}")
        if name is None:
            told = (ids(value) if callable(ids) else None for value in values)
            pairs = zip(told, values, strict=True)
            name = "-".join(repr(it)[:80] if one is None else str(one) for one, it in pairs)
        yield name, dict(zip(arguments, values, strict=True))


def _chosen(cases: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """The cases that `--case` asks for."""
    chosen = [case for case in cases if _wanted is None or _wanted in case[0]]
    if not chosen:
        pytest.skip(f"no case has {_wanted!r} in its name")
    return chosen


class _Failures:
    """The cases that failed."""

    def __init__(self) -> None:
        self.count = 0
        self.raised: list[tuple[str, Exception]] = []
        self.skipped: list[BaseException] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Keep what a case raises. Cancellation and interrupts propagate."""
        self.count += 1
        try:
            yield
        except pytest.skip.Exception as skipped:
            self.skipped.append(skipped)
        except pytest.fail.Exception as outcome:
            failed = AssertionError(f"{type(outcome).__name__}: {outcome}")
            self.raised.append((name, failed.with_traceback(outcome.__traceback__)))
        except Exception as error:
            self.raised.append((name, error))
        except BaseException as error:
            error.add_note(f"case: {name}")
            raise

    def end(self) -> None:
        """Raise what all cases raised; skip the test if all cases were skipped."""
        for name, error in self.raised:
            error.add_note(f"case: {name}")
        if self.raised:
            names = ", ".join(name for name, _ in self.raised)
            raise ExceptionGroup(
                f"{len(self.raised)} of {self.count} cases failed: {names}",
                [error for _, error in self.raised],
            )
        if len(self.skipped) == self.count:
            raise self.skipped[0]
