"""Parley installed in a program that has its own `node`, `crypto`, `lbm` and `pipeline`.

It is installed from a wheel built from a source distribution, from a compiled wheel (`--wheel`),
and from a clone.
"""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = [
    pytest.mark.installed,
    pytest.mark.timeout(900),
    pytest.mark.slow,
]

ROOT = Path(__file__).parents[2]
UV = os.environ.get("UV") or "uv"
NAMES = ("node", "crypto", "lbm", "pipeline")
PROGRAM = """
import anyio
import crypto, lbm, node, pipeline
from parley import Identity, Node

async def main():
    async with Node(Identity.create()) as alice, Node(Identity.create()) as bob:
        bob.on_call("greet")(lambda call: f"hello {call.data}")
        peer = await alice.connect(await bob.listen("tcp://127.0.0.1:0"))
        print(await peer.call("greet", "Alice"))

anyio.run(main)
print(crypto.OWN, lbm.OWN, node.OWN, pipeline.OWN)
"""
TOP_LEVEL = """
from importlib.metadata import distribution

files = distribution("parley-node").files
print(*{file.parts[0] for file in files if file.suffix in (".py", ".so")})
"""
IMPORTS = f"""
from importlib import import_module

for name in {NAMES}:
    try:
        import_module(name)
    except ImportError as error:
        print(error.name)
"""


def run(place: Path, *command: str | Path) -> str:
    """Run a program in the folder `place`, which is also on its import path, and return its
    output.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "PARLEY_HOME": str(place / "home"),
        "PYTHONPATH": str(place),
    }
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(place: Path, *options: str) -> Path:
    """Build into the folder `place` and return the wheel, by default built from a source
    distribution.
    """
    command = [UV, "build", "--quiet", "--out-dir", str(place), *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    (wheel,) = place.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that a source distribution makes."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module", params=["wheel", "clone", "--wheel"])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of scripts of an environment in which Parley is installed."""
    place = tmp_path_factory.mktemp("installed")
    given = request.config.getoption("--wheel")
    if request.param == "clone":
        what = ["--editable", f"{ROOT}[cli,pipeline]"]
    elif request.param == "--wheel":
        if given is None:
            pytest.skip("no --wheel is given")
        what = [f"{Path(given).resolve()}[cli,pipeline]"]
    else:
        what = [f"{request.getfixturevalue('wheel')}[cli,pipeline]"]
    python = place / "venv" / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(place / "venv")],
        ["pip", "install", "--quiet", "--python", str(python), *what],
    ):
        subprocess.run([UV, *command], cwd=place, check=True, timeout=600)
    return python.parent


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """Create a folder with modules and packages that have the names of Parley's folders."""
    for name in NAMES[:2]:
        (tmp_path / f"{name}.py").write_text(f"OWN = 'my {name}'\n")
    for name in NAMES[2:]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = 'my {name}'\n")
    (tmp_path / "main.py").write_text(PROGRAM)
    return tmp_path


def test_a_program_has_modules_of_our_names(programs: Path, beside: Path) -> None:
    said = run(beside, programs / "python", "main.py")
    assert said == "hello Alice\nmy crypto my lbm my node my pipeline\n"


def test_the_commands_run_beside_them(programs: Path, beside: Path) -> None:
    assert '"done"' in run(beside, programs / "parley", "demo", "--json")


def test_the_pipeline_runs_beside_them(programs: Path, beside: Path) -> None:
    parley = programs / "parley"
    made = ("--journals", "journals")
    run(beside, parley, "simulate", "--nodes", "2", "--minutes", "0.05", "--seed", "5", *made)
    key = ("--auditor-key", "auditor.key")
    tables = ("--tables", "tables", "--master", "local[2]")
    run(beside, parley, "pipeline", "run", *made, *tables, *key)
    run(beside, parley, "pipeline", "report", *tables, "--html", "report.html")
    assert "</html>" in (beside / "report.html").read_text("utf-8")


def test_nothing_else_can_be_imported(programs: Path, tmp_path: Path) -> None:
    assert run(tmp_path, programs / "python", "-c", IMPORTS).split() == list(NAMES)
    assert set(run(tmp_path, programs / "python", "-c", TOP_LEVEL).split()) <= {"parley"}


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    found = []
    for made in (wheel, build(tmp_path, "--wheel")):
        with ZipFile(made) as file:
            found.append({name: file.read(name) for name in file.namelist()})
    assert found[0] == found[1]


def test_a_library_install_is_light(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, venv], check=True)
    pip = [UV, "pip", "install", "--quiet", "--python", str(venv), str(ROOT)]
    subprocess.run(pip, check=True, timeout=300)
    listed = [UV, "pip", "list", "--quiet", "--python", str(venv)]
    found = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    assert len(found.splitlines()[2:]) <= 12
    (tmp_path / "main.py").write_text(
        PROGRAM.replace("import crypto, lbm, node, pipeline", "").rsplit("print", 1)[0]
    )
    assert run(tmp_path, venv / "bin" / "python", "main.py") == "hello Alice\n"
    done = subprocess.run([venv / "bin" / "parley", "id", "new"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'parley-node[cli]'" in done.stderr
