"""Tests of node/trust/known_peers.py: the lines, the lock, and failed writes."""

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, KnownPeersError
from parley._node.trust import files as shared_file
from parley._node.trust import known_peers as module
from parley._node.trust.known_peers import MAX_NAME_SIZE, KnownPeer, KnownPeers, default_known_peers

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
LATER = NOW + timedelta(days=1)


def node_id(number: int) -> NodeId:
    return NodeId(hashlib.sha256(b"%d" % number).digest())


A, B, C = node_id(1), node_id(2), node_id(3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "known_peers"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_file_is_empty_and_stays_missing(path: Path) -> None:
    peers = KnownPeers(path / "in" / "no" / "directory")
    assert list(peers) == []
    assert len(peers) == 0
    assert peers.lookup(A) is None
    assert peers.by_name("tcp://h:1") is None
    assert not path.exists()


def test_line_contains_id_time_and_names(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, None, NOW)
    peers.add(B, "tcp://h:1", NOW)
    peers.add(B, "unix:///s", LATER)
    assert path.read_text() == (
        f"{A} 2026-03-04T05:06:07Z -\n{B} 2026-03-04T05:06:07Z tcp://h:1,unix:///s\n"
    )


def test_peers_are_found_by_id_and_by_name(path: Path) -> None:
    peers = KnownPeers(path)
    assert peers.add(A, "a", NOW) == KnownPeer(A, NOW, ("a",))
    assert peers.add(A, "a2", LATER) == KnownPeer(A, NOW, ("a", "a2"))
    assert peers.add(B, None, LATER) == KnownPeer(B, LATER)
    for reader in (peers, KnownPeers(path)):
        assert reader.lookup(A) == reader.by_name("a") == reader.by_name("a2")
        assert reader.lookup(A) == KnownPeer(A, NOW, ("a", "a2"))
        assert reader.lookup(C) is None
        assert reader.by_name("b") is None
        assert [peer.node_id for peer in reader] == [A, B]
        assert len(reader) == 2


def test_time_is_kept_in_utc_to_the_second(path: Path) -> None:
    peers = KnownPeers(path)
    tokyo = timezone(timedelta(hours=9))
    added = peers.add(A, None, datetime(2026, 1, 1, 3, 0, 0, 999_999, tzinfo=tokyo))
    assert added == KnownPeers(path).lookup(A)
    assert added.first_seen == datetime(2025, 12, 31, 18, 0, 0, tzinfo=UTC)
    with pytest.raises(ValueError, match="time zone"):
        peers.add(B, None, datetime(2026, 1, 1))


def test_unchanged_peer_is_not_written_again(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    before = path.stat()
    assert peers.add(A, "a", LATER) == peers.add(A, None, LATER) == KnownPeer(A, NOW, ("a",))
    peers.rename(A, "a")
    assert not peers.forget(B)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_name_belongs_to_one_peer(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    peers.add(B, "b", NOW)
    for other in (B, C):
        with pytest.raises(KnownPeersError, match=f"cannot use the name 'a' .* it belongs to {A}"):
            peers.add(other, "a", NOW)
    with pytest.raises(KnownPeersError, match=f"cannot use the name 'a' .* it belongs to {A}"):
        peers.rename(B, "c", "a")
    assert list(KnownPeers(path)) == [KnownPeer(A, NOW, ("a",)), KnownPeer(B, NOW, ("b",))]


def test_renaming_replaces_all_names(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    assert peers.rename(A, "x", "y", "x") == KnownPeer(A, NOW, ("x", "y"))
    assert peers.by_name("a") is None
    assert peers.rename(A) == KnownPeer(A, NOW)
    assert path.read_text().endswith(" -\n")
    with pytest.raises(KnownPeersError, match="is not in"):
        peers.rename(B, "b")


def test_a_forgotten_peer_frees_its_names(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    peers.add(B, "b", NOW)
    assert peers.forget(A)
    assert not peers.forget(A)
    assert peers.lookup(A) is None
    peers.add(C, "a", LATER)
    assert [peer.node_id for peer in KnownPeers(path)] == [B, C]


def test_iteration_is_unaffected_by_changes_of_the_file(path: Path) -> None:
    peers = KnownPeers(path)
    for number in range(3):
        peers.add(node_id(number), None, NOW)
    for peer in peers:
        assert peers.forget(peer.node_id)
    assert len(peers) == 0


@pytest.mark.parametrize(
    "name", ["", "-", "a,b", "a b", "a\tb", "a\nb", "a\u00a0b", "\udcff", "a" * (MAX_NAME_SIZE + 1)]
)
def test_invalid_name_is_refused(path: Path, name: str) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    with pytest.raises(KnownPeersError, match="invalid name"):
        peers.add(A, name, NOW)
    with pytest.raises(KnownPeersError, match="invalid name"):
        peers.rename(A, name)
    assert KnownPeers(path).lookup(A) == KnownPeer(A, NOW, ("a",))


def test_comments_and_blank_lines_are_kept(path: Path) -> None:
    line_a, line_b = f"{A}   2026-03-04T05:06:07+00:00\ta", f"{B} 2026-03-04T05:06:07Z -"
    path.write_text(f"# friends\n\n{line_a}\n  # others, né\n{line_b}\r\n \n#end")
    peers = KnownPeers(path)
    assert list(peers) == [KnownPeer(A, NOW, ("a",)), KnownPeer(B, NOW)]
    peers.add(B, "b", NOW)
    peers.add(C, None, NOW)
    assert path.read_text() == (
        f"# friends\n\n{line_a}\n  # others, né\n{B} 2026-03-04T05:06:07Z b\n \n#end\n"
        f"{C} 2026-03-04T05:06:07Z -\n"
    )
    assert peers.forget(A)
    assert path.read_text().startswith("# friends\n\n  # others, né\n")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello", "expected three fields"),
        (f"{B} 2026-03-04T05:06:07Z", "expected three fields"),
        (f"{B} 2026-03-04T05:06:07Z b # comment", "expected three fields"),
        ("b 2026-03-04T05:06:07Z b", "invalid node ID"),
        (
            f"{B.text.upper()} 2026-03-04T05:06:07Z b",
            f"invalid node ID '{B.text.upper()}': the correct spelling is",
        ),
        (f"{B} yesterday b", "invalid first-seen time"),
        (f"{B} 2026-13-04T05:06:07Z b", "invalid first-seen time"),
        (f"{B} 2026-03-04T05:06:07 b", "invalid first-seen time"),
        (f"{B} 2026-03-04T05:06:07+01:00 b", "invalid first-seen time"),
        (f"{B} 2026-03-04T05:06:07Z b,", "invalid name '': expected 1 to"),
        (f"{B} 2026-03-04T05:06:07Z b,-", "invalid name"),
        (f"{B} 2026-03-04T05:06:07Z b,b", "a name is used twice"),
        (f"{B} 2026-03-04T05:06:07Z a", "a name is used twice"),
        (f"{A} 2026-03-04T05:06:07Z b", f"node ID {A} is already on another line"),
    ],
)
def test_a_malformed_line_is_named(path: Path, line: str, reason: str) -> None:
    path.write_text(f"# first\n{A} 2026-03-04T05:06:07Z a\n{line}\n")
    before = path.read_bytes()
    peers = KnownPeers(path)
    for use in (
        lambda: peers.lookup(A),
        lambda: peers.by_name("a"),
        lambda: list(peers),
        lambda: peers.add(C, None, NOW),
        lambda: peers.rename(A, "x"),
        lambda: peers.forget(A),
    ):
        with pytest.raises(KnownPeersError) as caught:
            use()
        assert str(caught.value).startswith(f"{path}, line 3: {reason}")
    assert path.read_bytes() == before


def test_a_line_that_is_not_utf_8_is_named(path: Path) -> None:
    path.write_bytes(b"\n# \xff\n")
    with pytest.raises(KnownPeersError, match=r"known_peers, line 2: not valid UTF-8"):
        len(KnownPeers(path))


@given(st.binary(max_size=200) | st.text("# -,\nabc2026Z", max_size=80).map(str.encode))
@example(b"\n")
@example(b"#\x85\n")
def test_any_bytes_are_lines_or_a_known_peers_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "known_peers"
    path.write_bytes(data)
    peers = KnownPeers(path)
    try:
        assert len(peers) == 0
    except KnownPeersError:
        return
    peers.add(A, "a", NOW)
    kept = data if not data or data.endswith(b"\n") else data + b"\n"
    assert path.read_bytes() == kept + f"{peers.lookup(A)}\n".encode()


def test_changes_on_disk_are_seen(path: Path) -> None:
    peers, others = KnownPeers(path), KnownPeers(path)
    assert peers.lookup(A) is None
    others.add(A, "a", NOW)
    assert peers.by_name("a") == KnownPeer(A, NOW, ("a",))
    others.rename(A, "x")
    assert peers.by_name("a") is None
    with path.open("a") as file:  # as an editor would, in place
        file.write(f"{B} 2026-03-04T05:06:07Z b\n")
    assert peers.by_name("b") == KnownPeer(B, NOW, ("b",))
    path.unlink()
    assert peers.lookup(A) is None
    assert peers.add(C, None, NOW) == others.lookup(C)


def test_an_unchanged_file_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)

    def refuse(*arguments: object) -> int:
        raise AssertionError("the file was opened again")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        found = peers.lookup(A), peers.by_name("a")
    assert found == (KnownPeer(A, NOW, ("a",)),) * 2


def test_writer_rereads_a_seemingly_unchanged_file(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, "old", NOW)
    before = path.stat()
    with path.open("r+") as file:  # in place, of the same size, within one tick of the clock
        file.write(path.read_text().replace("old", "new"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    peers.add(B, None, NOW)
    assert list(peers) == [KnownPeer(A, NOW, ("new",)), KnownPeer(B, NOW)]


def test_files_and_directories_are_accessible_only_to_the_owner(
    tmp_path: Path, open_umask: None
) -> None:
    path = tmp_path / "one" / "two" / "known_peers"
    KnownPeers(path).add(A, None, NOW)
    assert mode(path) == 0o600
    assert mode(path.with_name("known_peers.lock")) == 0o600
    assert mode(tmp_path / "one") == mode(tmp_path / "one" / "two") == 0o700
    path.chmod(0o640)
    KnownPeers(path).add(B, None, NOW)
    assert mode(path) == 0o640  # a group that the operator chose can still read it
    assert sorted(os.listdir(path.parent)) == ["known_peers", "known_peers.lock"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    KnownPeers(link).add(A, None, NOW)
    assert link.is_symlink()
    assert KnownPeers(real).lookup(A) is not None


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(KnownPeersError, match=r"cannot write .*: No space left on device"):
            peers.add(B, "b", NOW)
    assert path.read_bytes() == before
    assert peers.lookup(B) is None
    peers.add(B, "b", NOW)  # the remains of the failed write don't matter
    assert [peer.node_id for peer in KnownPeers(path)] == [A, B]


def test_full_file_rejects_further_peers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = KnownPeers(path)
    peers.add(A, None, NOW)
    size = path.stat().st_size
    monkeypatch.setattr(module, "MAX_FILE_SIZE", 2 * size)
    peers.add(B, None, NOW)
    with pytest.raises(KnownPeersError, match="it would exceed 152 bytes"):
        peers.add(C, None, NOW)
    assert len(KnownPeers(path)) == 2
    monkeypatch.setattr(module, "MAX_FILE_SIZE", 2 * size - 1)
    with pytest.raises(KnownPeersError, match="longer than"):
        len(KnownPeers(path))


def test_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KnownPeersError, match=r"cannot read|is not a regular file"):
        KnownPeers(tmp_path).lookup(A)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(KnownPeersError, match="it is not a regular file"):
        KnownPeers(pipe).lookup(A)
    (tmp_path / "file").touch()
    beneath = KnownPeers(tmp_path / "file" / "known_peers")
    with pytest.raises(KnownPeersError, match="cannot read"):
        beneath.lookup(A)
    with pytest.raises(KnownPeersError, match="cannot open"):
        beneath.add(A, None, NOW)


def test_a_lock_that_fails_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(KnownPeersError, match=r"cannot lock .*: No locks available"):
        KnownPeers(path).add(A, None, NOW)
    assert not path.exists()


def test_a_writer_waits_for_the_lock_and_then_reads_again(path: Path) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    with path.with_name("known_peers.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = Thread(target=peers.add, args=(C, "c", NOW))
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        with path.open("a") as file:
            file.write(f"{B} 2026-03-04T05:06:07Z b\n")
    writer.join(5)
    assert [peer.node_id for peer in KnownPeers(path)] == [A, B, C]


def test_a_writer_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = KnownPeers(path)
    peers.add(A, "a", NOW)
    monkeypatch.setattr(shared_file, "LOCK_TIMEOUT", 0.05)
    with path.with_name("known_peers.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KnownPeersError, match="cannot lock"):
            peers.add(B, "b", NOW)
    peers.add(B, "b", NOW)
    assert peers.lookup(B) is not None


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))
    assert default_known_peers() == tmp_path / "known_peers"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", None):
        monkeypatch.delenv("PARLEY_HOME")
        if unset is not None:
            monkeypatch.setenv("PARLEY_HOME", unset)
        assert default_known_peers() == tmp_path / ".config" / "parley" / "known_peers"
        monkeypatch.setenv("PARLEY_HOME", "~no-such-user-of-this-system")
    with pytest.raises(ConfigError, match="PARLEY_HOME"):
        default_known_peers()


def test_a_file_of_a_killed_process_is_removed(path: Path) -> None:
    leftover = path.with_name(f".{path.name}.0123456789abcdef.new")
    leftover.write_bytes(b"half of")
    KnownPeers(path).add(A, "a", NOW)
    assert not leftover.exists()
