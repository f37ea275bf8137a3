"""The tables of docs/wycheproof.md match the tests that run and those left out.

Every file about an algorithm of the registry is in one of its two tables.
"""

from pathlib import Path

from tests.sweep import sweep
from tests.wycheproof import (
    test_ciphers,
    test_ecdsa,
    test_ed25519,
    test_kdf,
    test_key_exchange,
    test_ml_dsa,
)
from tests.wycheproof.tally import Run, Tally, tally
from tests.wycheproof.vectors import FILES, cases, declared

DOCUMENT = Path(__file__).parents[2] / "docs" / "wycheproof.md"

RUNS: dict[str, Run] = {
    **test_key_exchange.FILES,
    **test_ciphers.FILES,
    **test_kdf.FILES,
    **test_ed25519.FILES,
    **test_ml_dsa.FILES,
    **test_ecdsa.FILES,
}

# How the names begin of the files about algorithms that we have, or of their nearest kin.
OURS = (
    "x25519",
    "mlkem_768",
    "ecdh_secp256r1",
    "aes_gcm",
    "chacha20",
    "xchacha20",
    "hkdf",
    "hmac",
    "ed25519",
    "mldsa_65",
    "ecdsa_secp256r1",
)


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by the file each is about."""
    section = DOCUMENT.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    found = {row[0].strip("`"): row[1:] for row in rows}
    assert len(found) == len(rows)
    return found


def row(found: Tally) -> list[str]:
    """The cells that are true of a file, but the last, whose order is free."""
    return [f"{n:,}" for n in (found.verdicts.total(), found.run, found.left_out)]


@sweep("file", RUNS)
def test_a_row_tells_the_truth(file: str) -> None:
    found = tally(file, RUNS[file])
    *numbers, remarks = table("Files that are run")[file]
    assert numbers == row(found)
    assert set(filter(None, remarks.split("; "))) == found.remarks
    assert found.verdicts.total() == declared(file)


def test_every_file_that_is_run_has_its_row_and_no_other_has() -> None:
    assert table("Files that are run").keys() == RUNS.keys()


def test_every_left_out_case_has_a_reason() -> None:
    for file, run in RUNS.items():
        assert all(v.remark for v in tally(file, run).verdicts if not v.run), file


def test_files_left_out_are_there_and_have_a_reason() -> None:
    for file, (count, why) in table("Files left out").items():
        assert count == f"{declared(file):,}"
        assert why, file


def test_no_file_of_ours_is_forgotten() -> None:
    ours = {file for file in FILES if file.startswith(OURS)}
    assert table("Files left out").keys() == ours - RUNS.keys()


def test_the_sums() -> None:
    tallies = [tally(file, run) for file, run in RUNS.items()]
    run, out = sum(t.run for t in tallies), sum(t.left_out for t in tallies)
    assert f"{run + out:,} cases in {len(RUNS)} files, {run:,} of them run" in DOCUMENT.read_text()


def test_ids_within_a_file_are_unique() -> None:
    # A failure is named by its tcId.
    for file in RUNS:
        ids = [case.id for case in cases(file)]
        assert len(set(ids)) == len(ids), file
