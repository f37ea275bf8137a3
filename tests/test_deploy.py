"""What `deploy/` has for operators: checked by the tools that are here, and against the code."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from parley._node.metrics.catalogue import CATALOGUE
from parley._node.protocol.codes import ResultCode, result_name
from parley._node.settings import load_settings

DEPLOY = Path(__file__).parent.parent / "deploy"
PAGE = DEPLOY.parent / "docs" / "guides" / "run-a-server.md"
ANALYSE = shutil.which("systemd-analyze")
# Of 10, by `systemd-analyze security`; 1.1 when it was written, with systemd 252.
MOST_EXPOSED = "15"

needs_systemd = pytest.mark.skipif(ANALYSE is None, reason="systemd-analyze is not installed")


def analysed(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The unit, with a program in place of one that is not installed here, as systemd sees it."""
    unit = tmp_path / "parley.service"
    text = (DEPLOY / "parley.service").read_text()
    unit.write_text(text.replace("/opt/parley/bin/parley", "/bin/true"))
    assert ANALYSE is not None
    return subprocess.run(
        [ANALYSE, *arguments, str(unit)], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.process
@needs_systemd
def test_the_unit_is_one(tmp_path: Path) -> None:
    done = analysed(tmp_path, "verify")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
@needs_systemd
def test_the_unit_is_hardened(tmp_path: Path) -> None:
    done = analysed(
        tmp_path, "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED}"
    )
    assert done.returncode == 0, done.stdout[-200:]


def test_the_unit_is_told_how_it_is_and_waits_for_the_end() -> None:
    text = (DEPLOY / "parley.service").read_text()
    found = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert (found["Type"], found["ExecReload"]) == ("notify", "/bin/kill -HUP $MAINPID")
    settings = load_settings(DEPLOY / "parley.toml", {})
    assert int(found["TimeoutStopSec"]) > 2 * settings.node.drain_timeout + 8 + 3
    assert int(found["LimitNOFILE"]) > settings.node.max_connections
    assert int(found["WatchdogSec"]) > 0


def test_the_settings_are_all_there_is(tmp_path: Path) -> None:
    text = (DEPLOY / "parley.toml").read_text()
    assert load_settings(DEPLOY / "parley.toml", {}).serve.log_format == "json"
    key = "parley-auditor-r5amllnwr4swesxfwikou5t2n3eu3au5hv5v4gwrxjxt4ijyfbpq"
    whole = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE).replace("NODEID", "*")
    (tmp_path / "parley.toml").write_text(whole.replace("parley-auditor-...", key))
    settings = load_settings(tmp_path / "parley.toml", {})
    assert settings.bus.allow
    assert settings.journal.auditors == (key,)


def test_alerts_ask_for_what_there_is_and_the_page_says_what_to_do() -> None:
    text = (DEPLOY / "parley.rules.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", text)
    assert len(alerts) == text.count("alert:") > 10
    by_name = {measure.full_name: measure for measure in CATALOGUE.values()}
    codes = {result_name(code) for code in ResultCode} | {"ok", "accepted", "up"}
    for alert, asked in alerts:
        for name, labels in re.findall(r"\b(parley_\w+)(?:\{(.*?)\})?", asked):
            for label, value in re.findall(r'(\w+)!?="([\w-]*)"', labels):
                assert label in by_name[name].labels, (alert, label)
                assert value in codes, (alert, value)
            assert re.sub(r"_bucket$", "", name) in by_name, (alert, name)
    page = PAGE.read_text()
    assert re.findall(r"^\| `(Parley\w+)` \|", page, re.MULTILINE) == [name for name, _ in alerts]


def test_the_container_has_what_it_copies_and_is_nobody() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (DEPLOY.parent / name).exists(), name
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)


def test_the_container_is_asked_where_it_answers_and_sees_settings_that_are_written_anew() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    (asked,) = re.findall(r"http://([\d.:]+)/healthz", text)
    assert asked == load_settings(DEPLOY / "parley.toml", {}).serve.metrics
    (read,) = re.findall(r'"--config", "(.*)"\]', text)
    # Mount the directory: a mounted file keeps its initial content inside the container.
    assert f":{Path(read).parent}:ro" in PAGE.read_text()
