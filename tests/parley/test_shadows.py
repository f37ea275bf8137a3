"""Other packages with our names: found wherever they are, and told apart by what they do."""

import os
import subprocess
import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest

from parley import shadows
from parley.shadows import (
    OURS,
    ROOT,
    Clash,
    Shadow,
    explained,
    find_shadows,
    folds_case,
    main,
)

NOBODY: dict[str, list[str]] = {"typer": ["typer"]}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A directory with all our packages, as an installation has them."""
    return made(tmp_path / "ours", *OURS)


def made(directory: Path, *packages: str) -> Path:
    for name in packages:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").touch()
    invalidate_caches()
    return directory


def found(*path: Path, root: Path, folds: bool = False) -> list[tuple[Clash, str, str]]:
    others = find_shadows(
        [str(entry) for entry in path], root=root, folds=lambda _: folds, owners=NOBODY
    )
    return [(s.kind, s.name, s.path) for s in others]


def test_nobody_else_has_a_name_here() -> None:
    assert [s for s in find_shadows(owners=NOBODY) if s.kind.is_harmful] == []


def test_alone(ours: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", "typer", "nodes")
    assert found(other, ours, tmp_path / "missing", root=ours) == []


@pytest.mark.parametrize("name", OURS)
def test_a_package_ahead_is_found_instead(ours: Path, tmp_path: Path, name: str) -> None:
    other = made(tmp_path / "other", name)
    init = str(other / name / "__init__.py")
    assert found(other, ours, root=ours) == [(Clash.INSTEAD, name, init)]
    assert found(ours, other, root=ours) == [(Clash.HIDDEN, name, init)]


def test_a_module_of_one_file(ours: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "crypto.py").touch()
    (other / "node.txt").touch()
    invalidate_caches()
    assert found(other, ours, root=ours) == [(Clash.INSTEAD, "crypto", str(other / "crypto.py"))]


def test_a_directory_that_is_no_package_does_no_harm(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "node").mkdir(parents=True)
    invalidate_caches()
    assert found(tmp_path / "other", ours, root=ours) == []


def test_a_name_in_another_case(ours: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", "Crypto")
    beside = str(made(ours, "Crypto") / "Crypto" / "__init__.py")
    apart = str(other / "Crypto" / "__init__.py")
    expected = [(Clash.CASE, "Crypto", apart), (Clash.CASE, "Crypto", beside)]
    assert found(other, ours, root=ours) == expected
    # On a disk that takes the two names for one, the two in one place are one directory.
    expected[1] = (Clash.MIXED, "Crypto", beside)
    assert found(other, ours, root=ours, folds=True) == expected


def test_another_copy_of_parley_is_said_once(ours: Path, tmp_path: Path) -> None:
    copy = made(tmp_path / "copy", *OURS)
    (copy / Path(shadows.__file__).relative_to(ROOT)).touch()
    assert found(ours, copy, root=ours) == [(Clash.COPY, "parley", str(copy))]


def test_what_was_installed_over_ours(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"pycryptodome": ours, "crypto": ours, "elsewhere": ours.parent}

    def place_of(distribution: str) -> Path:
        return places[distribution]

    monkeypatch.setattr(shadows, "_place_of", place_of)
    owners = {
        "Crypto": ["pycryptodome"],
        "crypto": ["parley-node", "crypto", "elsewhere"],
        "typer": ["typer"],
    }

    def claimed(folds: bool) -> list[tuple[Clash, str]]:
        others = find_shadows([str(ours)], root=ours, folds=lambda _: folds, owners=owners)
        return [(s.kind, s.name) for s in others]

    assert claimed(folds=False) == [(Clash.MIXED, "crypto")]
    assert claimed(folds=True) == [(Clash.MIXED, "Crypto"), (Clash.MIXED, "crypto")]


def test_where_a_distribution_lies() -> None:
    assert (shadows._place_of("typer") / "typer" / "__init__.py").exists()
    assert shadows._place_of("no-such-distribution-here") == Path()


def test_whether_a_disk_folds_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not folds_case(tmp_path / "missing")
    (tmp_path / "1").touch()
    assert not folds_case(tmp_path)  # no name to try
    (tmp_path / "name").touch()
    real = (tmp_path / "NAME").exists()  # what this disk does
    assert folds_case(tmp_path) is real
    # A disk that does: both spellings are the same file.
    monkeypatch.setattr(os.path, "samefile", lambda one, other: str(one).lower() != one)
    assert folds_case(tmp_path)
    # Two files are listed: then there are two names, whatever they are the same as.
    if not real:
        (tmp_path / "NAME").touch()
        assert not folds_case(tmp_path)


def test_every_shadow_says_what_to_do() -> None:
    for kind in Clash:
        shadow = Shadow(kind, "crypto", "/x/crypto")
        assert str(shadow).startswith("crypto at /x/crypto is another")
        assert shadow.mend
    assert {kind for kind in Clash if kind.is_harmful} == {
        Clash.INSTEAD,
        Clash.MIXED,
    }


def test_an_import_error_of_another_reason_stays() -> None:
    error = ImportError("no cryptography")
    assert explained(error) is error


def test_as_a_program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows, "find_shadows", list)
    assert main() == 0
    assert "no other package has a name of Parley's" in capsys.readouterr().out
    harm = Shadow(Clash.INSTEAD, "crypto", "/x")
    monkeypatch.setattr(shadows, "find_shadows", lambda: [harm])
    assert main() == 1
    assert capsys.readouterr().out == f"{harm}; {harm.mend}\n"
    monkeypatch.setattr(shadows, "find_shadows", lambda: [Shadow(Clash.CASE, "Crypto", "/x")])
    assert main() == 0


def run(*command: str, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=path,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


@pytest.mark.process
def test_a_process_that_finds_another_crypto_says_so(tmp_path: Path) -> None:
    init = made(tmp_path / "other", "crypto") / "crypto" / "__init__.py"
    said = f"crypto at {init} is another package's, and found in place of"
    program = run("-c", "from parley import Node", path=tmp_path / "other")
    assert program.returncode == 1
    last = program.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {said}")
    assert "python -m parley.shadows says more" in last
    command = run("-m", "parley", "doctor", path=tmp_path / "other")
    assert command.returncode == 1
    assert command.stderr.startswith(f"parley: {said}")
    assert command.stderr.count("\n") == 1


@pytest.mark.process
def test_a_node_of_the_users_own_is_told_by_the_command(tmp_path: Path) -> None:
    own = tmp_path / "node.py"
    own.write_text("print('mine')")
    done = run("-m", "parley", "--version", path=tmp_path)
    assert (done.returncode, done.stdout) == (1, "mine\n")
    assert done.stderr.startswith(f"parley: node at {own} is another package's, and found in place")
    assert done.stderr.count("\n") == 1
    done = run("-m", "parley.shadows", path=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"node at {own} is another package's" in done.stdout
    own.unlink()
    assert run("-m", "parley.shadows", path=tmp_path).returncode == 0
