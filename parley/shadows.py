"""Whether another package stands where one of ours should: `crypto`, `node` and the like.

Four of our five names are general, so somebody else's package may have one of them, or a file
of your own beside your program. Only the standard library is imported here, nothing of ours,
since that may be what fails. Run where the program lies, it says what is found there:

    python -m parley.shadows
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = ("crypto", "lbm", "node", "parley", "pipeline")
DISTRIBUTION: Final = "parley-node"
ROOT: Final = Path(__file__).resolve().parent.parent  # where all five lie

FoldsCase = Callable[[Path], bool]


class Clash(Enum):
    """What the other package does: the meaning, and how to mend it."""

    INSTEAD = (
        "is another package's, and found in place of Parley's own",
        "if it is yours, call it something else; or take it off PYTHONPATH and out of the "
        "working directory, or install Parley into a virtual environment of its own",
    )
    MIXED = (
        "is another package's, in one directory with Parley's own, files of both mixed",
        "uninstall both, then install Parley into a virtual environment of its own",
    )
    HIDDEN = (
        "is another package's, hidden by Parley's own: what needs it will fail",
        "install Parley into a virtual environment of its own",
    )
    COPY = (
        "is another copy of Parley, and not the one that runs",
        "uninstall one of the two, if it is not meant to be there",
    )
    CASE = (
        "is another package's that differs from Parley's own in case only: two packages here, "
        "but one directory on a disk that takes the two names for one",
        "on such a disk, install Parley into a virtual environment of its own",
    )

    @property
    def is_harmful(self) -> bool:
        """Whether Parley itself does not work, or cannot be relied on."""
        return self in (Clash.INSTEAD, Clash.MIXED)


@dataclass(frozen=True, slots=True)
class Shadow:
    """Another package, found at `path`, with the name of ours or one that differs in case."""

    kind: Clash
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} at {self.path} {self.kind.value[0]}"

    @property
    def mend(self) -> str:
        """What to do about it."""
        return self.kind.value[1]


def folds_case(directory: Path) -> bool:
    """Whether names that differ only in case are one in a directory, as a file there shows."""
    try:
        names = set(os.listdir(directory))
        for name in names:
            swapped = name.swapcase()
            if swapped != name:
                # Where both are listed there are two files, whatever else is true.
                return swapped not in names and os.path.samefile(
                    directory / name, directory / swapped
                )
    except OSError:
        return False  # no such file: so the two names are two
    return False


def find_shadows(
    path: Sequence[str] | None = None,
    *,
    root: Path = ROOT,
    folds: FoldsCase = folds_case,
    owners: Mapping[str, Iterable[str]] | None = None,
) -> list[Shadow]:
    """All other packages with our names, along `path` (by default `sys.path`).

    `folds` says of a directory whether its disk takes names that differ in case for one;
    `owners` is which distributions have a top-level name (by default as installed).
    """
    find = find_spec if path is None else partial(PathFinder.find_spec, path=path)
    found = list(_instead(find, root))
    seen = {shadow.path for shadow in found}
    for entry in dict.fromkeys(Path(entry).resolve() for entry in path or sys.path):
        if entry != root and (entry / "parley" / "shadows.py").exists():
            found.append(Shadow(Clash.COPY, "parley", str(entry)))
            continue
        mixed = entry == root and folds(entry)
        for name, module in _modules(entry):
            if name not in OURS:
                found.append(Shadow(Clash.MIXED if mixed else Clash.CASE, name, str(module)))
            elif entry != root and str(module) not in seen:
                found.append(Shadow(Clash.HIDDEN, name, str(module)))
    return found + list(_claimed(root, folds, owners))


def explained(error: ImportError) -> ImportError:
    """What an import that failed inside Parley means, where another package is the reason."""
    shadows = list(_instead(find_spec, ROOT))
    if not shadows:
        return error
    lines = [f"{shadow}; {shadow.mend}" for shadow in shadows]
    return ImportError("; ".join(lines) + " (python -m parley.shadows says more)")


def _instead(find: Callable[[str], ModuleSpec | None], root: Path) -> Iterator[Shadow]:
    """What an import of our names finds now, if it is not ours."""
    for name in OURS:
        spec = find(name)
        if spec is None or spec.origin is None:
            continue  # not installed with the others, or a directory that is not a package
        if Path(spec.origin).resolve().parent != root / name:
            yield Shadow(Clash.INSTEAD, name, spec.origin)


def _modules(entry: Path) -> Iterator[tuple[str, Path]]:
    """Packages and modules of a directory that have one of our names, in any case."""
    try:
        names = sorted(os.listdir(entry))
    except OSError:
        return
    for name in names:
        stem = name.partition(".")[0]
        if stem.casefold() not in OURS:
            continue
        path = entry / name
        if name != stem:
            if name.removeprefix(stem) in all_suffixes():
                yield stem, path
            continue
        # Without that file a directory matches no package, wherever that stands.
        inside = [path / f"__init__{suffix}" for suffix in all_suffixes()]
        yield from ((stem, file) for file in inside if file.exists())


def _claimed(
    root: Path, folds: FoldsCase, owners: Mapping[str, Iterable[str]] | None
) -> Iterator[Shadow]:
    """Other distributions that were installed over ours: their files lie among ours."""
    for name, distributions in (owners or metadata.packages_distributions()).items():
        if name.casefold() not in OURS:
            continue
        for other in set(distributions) - {DISTRIBUTION}:
            if _place_of(other) == root and (name in OURS or folds(root)):
                yield Shadow(Clash.MIXED, name, f"{root / name} (of the distribution {other})")


def _place_of(distribution: str) -> Path:
    try:
        return Path(str(metadata.distribution(distribution).locate_file(""))).resolve()
    except metadata.PackageNotFoundError:
        return Path()


def main() -> int:
    """Say what was found; 1 if something of it does harm."""
    shadows = find_shadows()
    for shadow in shadows:
        print(f"{shadow}; {shadow.mend}")
    if not shadows:
        print(f"no other package has a name of Parley's ({', '.join(OURS)}), which lie in {ROOT}")
    return int(any(shadow.kind.is_harmful for shadow in shadows))


if __name__ == "__main__":
    sys.exit(main())
