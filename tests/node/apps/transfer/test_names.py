"""Tests of node/apps/transfer/names.py: safe names, and the reasons for refusing others."""

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.apps.transfer.names import (
    LONGEST_NAME,
    PARTIAL_ENDING,
    UnsafeNameError,
    partial_name,
    require_safe,
    same_file_key,
    sender_key,
    split_partial,
)
from tests.sweep import sweep


@sweep(
    "name",
    [
        "a",
        "README.md",
        "with space.txt",
        "a..b",
        "naïve.txt",
        "写真.jpg",
        "Screenshot at 1.00\u202fPM.png",
        "👨\u200d👩\u200d👧.png",
        "console.log",
        "com10",
        "com⁴",
        "clock",
        "x" * LONGEST_NAME,
    ],
)
def test_common_names_are_accepted(name: str) -> None:
    assert require_safe(name) == name


@sweep(
    ("name", "why"),
    [
        ("", "is empty"),
        (".", "begins with a dot"),
        ("..", "begins with a dot"),
        (".bashrc", "begins with a dot"),
        ("../x", "begins with a dot"),
        ("a/b", "contains one of"),
        ("/etc/passwd", "contains one of"),
        ("a\\b", "contains one of"),
        ("C:x", "contains one of"),
        ("a\0b", "non-printable"),
        ("a\nb", "non-printable"),
        ("a\x1b[2Jb", "non-printable"),
        ("a\u202egpj.exe", "non-printable"),
        ("a\u2028b", "non-printable"),
        ("a\udcffb", "not UTF-8"),
        ("x" * 256, "256 bytes"),
        ("é" * 128, "256 bytes"),
        ("dot.", "ends with"),
        ("space ", "ends with"),
        ("CON", "device"),
        ("nul.txt", "device"),
        ("com1 .tar.gz", "device"),
        ("com¹", "device"),
        ("LPT³.txt", "device"),
        ("conin$", "device"),
        ("CONOUT$.log", "device"),
        ("CLOCK$", "device"),
    ],
)
def test_others_are_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(UnsafeNameError, match=why):
        require_safe(name)


@given(st.text(st.characters() | st.sampled_from("./\\:\0 \u202eé"), max_size=300))
def test_forwarded_dials_follow_one_path(name: str) -> None:
    try:
        require_safe(name)
    except UnsafeNameError:
        return
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind("dir") / name
        assert path.parent == kind("dir")
        assert path.name == name
    assert 1 <= len(name.encode()) <= LONGEST_NAME


def test_partial_names_tell_offers_apart_and_fit() -> None:
    names = {
        partial_name(name, size, content, sender)
        for name in ("a", "b", "é" * 127)
        for size in (0, 1)
        for content in (bytes(32), bytes([1]) * 32)
        for sender in ("", "ann", "bob")
    }
    assert len(names) == 36
    assert len({split_partial(name)[0] for name in names}) == 12
    assert {split_partial(name)[1] for name in names} == {"", sender_key("ann"), sender_key("bob")}
    for name in names:
        assert name[0] == "."
        assert name.endswith(PARTIAL_ENDING)
        assert len(name.encode()) <= LONGEST_NAME
        with pytest.raises(UnsafeNameError):
            require_safe(name)  # so that an offer cannot contain it


def test_names_that_a_disk_may_take_for_the_same() -> None:
    assert same_file_key("README") == same_file_key("readme")
    assert same_file_key("caf\u00e9") == same_file_key("cafe\u0301")
    assert same_file_key("a") != same_file_key("b")
