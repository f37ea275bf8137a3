"""Row 24, a peer that floods: whatever it may send much of has a limit, and each limit has a
test that exceeds it.

Most of these tests stand with what they limit: `EXCEEDED` names one for each limit that
docs/reference/settings.md lists, and fails for one that it lists without. Here besides: floods
of a peer that reads nothing, against a whole node over a real socket, whose memory is watched.
"""

import ast
import gc
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.config import NodeConfig
from parley._node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from parley._node.protocol.batch_event import serialise_batch
from parley._node.protocol.codes import CALL, FINISH, OPEN, RESET, SIM, STREAM, CloseCode
from parley._node.protocol.limits import BATCH_COUNT, CONTROL_BUFFER, Limits
from tests.interop.meeting import our_config, their_config, with_bystander
from tests.node.protocol.pair import Pair, open_pair
from tests.reference.channel import ConnectionLost
from tests.reference.peer import ReferencePeer
from tests.reference.wire import TYPES
from tests.sweep import sweep

ROOT: Final = Path(__file__).parents[2]
SETTINGS: Final = ROOT / "docs" / "reference" / "settings.md"

PROTOCOL: Final = "tests/node/protocol/"
ALLOWANCES: Final = "tests/node/protocol/test_allowances.py::"
MESSAGING: Final = "tests/node/messaging/"
ONCE: Final = "tests/node/peer/test_once_floods.py::"
PARTED: Final = "tests/node/resume/test_parted_limits.py::"
RESUME: Final = "tests/node/protocol/test_resume_limits.py::"
DOORS: Final = "tests/node/trust/test_limits_of_servers.py::"
FEED: Final = "tests/node/messaging/test_stream_feed.py::"
SIMPROTO: Final = "tests/node/dialects/simproto/"
NAMED: Final = "tests/node/dialects/named/"
RELAY: Final = "tests/node/dialects/relay/"
GATEWAYS: Final = "tests/node/gateways/"

DIALECT_LIMITS: Final = (SimProtoLimits, NamedLimits, RelayLimits)

# Each limit, and tests that exceed it.
EXCEEDED: Final[dict[str, tuple[str, ...]]] = {
    # Limits.
    "max_payload": (
        PROTOCOL + "test_multiplexer.py::test_a_payload_above_max_payload",
        "tests/interop/test_violations.py::test_a_violation_ends_its_connection_and_no_other",
    ),
    "seal_events": (PROTOCOL + "test_channel.py::test_seal_events_and_one_without_a_seal",),
    "seal_delay_ms": (PROTOCOL + "test_channel.py::test_no_seal_for_delay_and_10_seconds",),
    "stream_window": (PROTOCOL + "test_multiplexer.py::test_an_event_at_no_credit",),
    "max_streams": (PROTOCOL + "test_multiplexer.py::test_too_many_streams",),
    "BATCH_COUNT": (
        PROTOCOL + "test_batch_event.py::test_what_is_no_batch",
        PROTOCOL + "test_batches_written.py::test_no_more_than_256_events",
    ),
    "BATCH_SIZE": (
        PROTOCOL + "test_batch_event.py::test_what_is_no_batch",
        PROTOCOL + "test_batches_written.py::test_no_more_than_32_kib",
    ),
    # NodeConfig.
    "handshake_timeout": (
        "tests/security/test_row_18_half_open.py::test_each_has_one_deadline_whatever_it_says",
    ),
    "idle_before_ping": (
        PROTOCOL + "test_keepalive.py::test_without_an_answer_it_is_over_after_15_and_10_seconds",
    ),
    "ping_timeout": (
        PROTOCOL + "test_keepalive.py::test_without_an_answer_it_is_over_after_15_and_10_seconds",
    ),
    "rekey_allowance": (
        PROTOCOL + "test_rekey.py::test_more_than_one_offer_in_10_seconds_is_overloaded",
        PROTOCOL + "test_rekey.py::test_an_allowance_is_an_allowance",
    ),
    "half_open": ("tests/security/test_row_18_half_open.py::test_a_thousand_strangers",),
    "max_connections": (DOORS + "test_more_connections_than_there_may_be",),
    "connections_per_address": (DOORS + "test_more_connections_of_one_address_than_there_may_be",),
    "handshakes_per_second": (DOORS + "test_more_handshakes_of_one_address_than_there_may_be",),
    "peer_memory": (
        "tests/node/test_memory.py::test_a_peer_holds_no_more_than_its_account_has",
        DOORS + "test_what_waits_for_a_peer_is_bounded",
        MESSAGING + "test_answering.py::test_answers_that_are_not_read_count_against_the_bound",
        PROTOCOL + "test_multiplexer.py::test_the_bound_of_a_connection_is_firm",
        PROTOCOL + "test_multiplexer.py::test_a_stream_that_opens_while_too_much_is_held_is_reset",
    ),
    "memory": ("tests/node/test_memory.py::test_all_peers_together_have_a_bound",),
    "once_results": (
        MESSAGING + "test_once.py::test_so_many_of_a_node_id",
        ONCE + "test_a_flood_of_keys_meets_the_bound_and_hurts_nobody_else",
    ),
    "once_peer_memory": (
        MESSAGING + "test_once.py::test_so_many_bytes_of_a_node_id",
        ONCE + "test_a_flood_of_answers_meets_the_bound",
    ),
    "once_memory": (
        MESSAGING + "test_once.py::test_so_many_bytes_of_all_node_ids",
        ONCE + "test_many_node_ids_share_one_bound",
    ),
    "parted_sessions": (PARTED + "test_so_many_of_all",),
    "parted_per_id": (PARTED + "test_so_many_of_one_node_id",),
    "parted_memory": (PARTED + "test_so_much_of_all",),
    "resume": (RESUME + "test_how_long_a_session_may_be_kept",),
    "RESUME_MS": (RESUME + "test_how_long_a_session_may_be_kept",),
    "resume_buffer": (RESUME + "test_a_full_buffer_holds_back_all_but_stream_0_and_open",),
    "LEAST_RESUME_BUFFER": (RESUME + "test_the_least_that_may_be_kept",),
    "RESUME_EXEMPT": (RESUME + "test_what_is_not_held_back_has_a_bound_as_well",),
    "TELL_BYTES": (
        RESUME + "test_so_many_bytes_are_told_at_once",
        RESUME + "test_telling_little_too_often_is_overloaded",
    ),
    "TELL_INTERVAL": (RESUME + "test_little_is_told_with_something_else_after_a_second",),
    "TELL_ALONE": (RESUME + "test_little_is_told_alone_after_ten_seconds",),
    "RESUME_TIMEOUT": (RESUME + "test_an_attempt_has_five_seconds",),
    "RESPONDER_PATIENCE": (RESUME + "test_a_parted_session_has_its_time",),
    "CLOSED_PATIENCE": (RESUME + "test_what_is_left_of_a_closed_session_has_five_seconds",),
    "SILENCE": (RESUME + "test_silence_before_a_seal_that_is_overdue_parts_the_session",),
    "ONCE_KEY_SIZE": ("tests/node/peer/test_once.py::test_keys_are_16_bytes",),
    "ONCE_RESULT": (
        "tests/node/peer/test_once.py::test_the_longest_answer_is_remembered",
        "tests/node/peer/test_once.py::test_failures_are_remembered",
    ),
    "ONCE_KEPT": (
        MESSAGING + "test_once.py::test_a_result_is_remembered_for_ten_minutes_from_the_answer_on",
    ),
    "ONCE_AGAIN": (
        "tests/node/peer/test_once_key.py::test_the_time_is_that_of_the_first_sending",
        "tests/node/peer/test_once_key.py::test_the_sleep_of_the_machine_counts",
    ),
    "write_buffer": (
        DOORS + "test_what_waits_to_be_written_is_bounded",
        "tests/node/test_hostile_peers.py"
        "::test_streams_without_credit_hold_no_more_than_the_write_buffer",
    ),
    "accept_timeout": ("tests/node/trust/test_accept_hook.py::test_no_answer_in_time_is_a_no",),
    "drain_timeout": ("tests/node/test_node.py::test_closing_waits_no_longer_than_it_was_told",),
    # CoreConfig.
    "update_after_events": (
        "tests/security/test_row_21_key_updates.py::test_each_limit_is_crossed_under_load",
    ),
    "update_after_bytes": (
        "tests/security/test_row_21_key_updates.py::test_each_limit_is_crossed_under_load",
    ),
    "update_after_seconds": (
        "tests/security/test_row_21_key_updates.py::test_each_limit_is_crossed_under_load",
    ),
    "rekey_interval": (
        "tests/security/test_row_21_key_updates.py::test_each_limit_is_crossed_under_load",
    ),
    "close_drain": (
        PROTOCOL + "test_connection.py::test_close_waits_for_credit_no_longer_than_close_drain",
    ),
    # Fixed limits.
    "HANDSHAKE_EVENT_SIZE": (
        PROTOCOL + "test_opening.py::test_a_frame_too_long_is_noticed_from_its_length",
    ),
    "RAW_EVENT_MINIMUM": ("tests/handshake/test_core.py::test_wrong_hellos",),
    "CONNECTION_STREAM_PAYLOAD": (PROTOCOL + "test_session.py::test_a_payload_above_4096_bytes",),
    "NODE_INFO_SIZE": ("tests/handshake/test_core.py::test_wrong_proofs",),
    "TEXT_SIZE": (PROTOCOL + "test_connection.py::test_a_text_that_is_too_long_or_no_text",),
    "SEAL_GRACE": (PROTOCOL + "test_channel.py::test_no_seal_for_delay_and_10_seconds",),
    "REKEY_TIMEOUT": (
        PROTOCOL + "test_rekey.py::test_no_answer_within_30_seconds_is_a_timeout",
        PROTOCOL
        + "test_rekey.py::test_a_rekey_that_is_not_finished_within_30_seconds_is_a_timeout",
    ),
    "REKEY_RATE_SECONDS": (
        PROTOCOL + "test_rekey.py::test_more_than_one_offer_in_10_seconds_is_overloaded",
    ),
    "KEY_UPDATES": (ALLOWANCES + "test_what_is_of_no_use_has_a_rate",),
    "OWN_KEY_UPDATES": (ALLOWANCES + "test_our_key_updates_have_half_of_their_allowance",),
    "UPDATES_BETWEEN_REKEYS": (ALLOWANCES + "test_updates_are_counted_until_a_rekey",),
    "IDLE_EVENTS": (ALLOWANCES + "test_what_is_of_no_use_has_a_rate",),
    "READ_ON": (ALLOWANCES + "test_a_reader_may_grant_as_it_reads_on_within_an_event",),
    "PINGS": (ALLOWANCES + "test_pings_have_a_rate",),
    "OWN_PINGS": (
        PROTOCOL + "test_keepalive.py::test_our_pings_have_half_of_the_other_sides_allowance",
    ),
    "DROPPED_EVENTS": (ALLOWANCES + "test_events_that_nobody_takes_have_a_rate",),
    "LARGEST_CREDIT": (PROTOCOL + "test_multiplexer.py::test_credit_above_the_greatest",),
    "UNANSWERED_REQUESTS": (
        MESSAGING + "test_answering.py::test_no_more_calls_than_the_bound",
        "tests/interop/test_requests.py::test_of_1025_unanswered_requests_one_is_refused",
    ),
    "WAITING_PONGS": (
        PROTOCOL + "test_keepalive.py::test_more_than_64_pongs_waiting_is_overloaded",
    ),
    "CLOSE_LINGER": (
        PROTOCOL + "test_connection.py::test_who_sent_close_reads_on_and_discards_for_2_seconds",
    ),
    "CONTROL_BUFFER": (
        "tests/security/test_row_24_floods.py::test_opens_that_the_core_refuses",
        "tests/security/test_row_24_floods.py::test_opens_that_the_application_refuses",
    ),
    "CONTROL_EVENTS": (
        PROTOCOL + "test_session.py::test_a_peer_can_reset_all_its_streams_before_it_reads",
    ),
    # Of the other dialects.
    "SimProtoLimits.longest_frame": (
        SIMPROTO + "test_core.py::test_the_longest_payload",
        SIMPROTO + "test_codec.py::test_a_length_is_judged_from_the_head",
    ),
    "SimProtoLimits.longest_name": (SIMPROTO + "test_codec.py::test_a_topic_is_bounded_in_bytes",),
    "SimProtoLimits.dialogs": (
        SIMPROTO + "test_core.py::test_more_requests_than_dialogs_end_it",
        GATEWAYS + "test_simproto_faults.py::test_a_flood_of_requests_is_cut_off",
    ),
    "SimProtoLimits.client_memory": (
        SIMPROTO + "test_core.py::test_more_bytes_than_may_wait_stop_reading",
    ),
    **{
        f"{limits.__name__}.memory": (
            GATEWAYS + "test_memory.py::test_the_clients_of_a_gateway_have_a_bound_together",
        )
        for limits in DIALECT_LIMITS
    },
    "SimProtoLimits.write_buffer": (
        SIMPROTO + "test_core.py::test_who_does_not_read_may_not_ask_more",
    ),
    "SimProtoLimits.answer_timeout": (
        SIMPROTO + "test_core.py::test_a_response_that_takes_too_long_ends_it",
    ),
    "SimProtoLimits.idle_before_ping": (
        SIMPROTO + "test_core.py::test_idle_is_pinged_and_silence_ends_it",
    ),
    "SimProtoLimits.ping_timeout": (
        SIMPROTO + "test_core.py::test_idle_is_pinged_and_silence_ends_it",
    ),
    "SimProtoLimits.clients": (GATEWAYS + "test_simproto.py::test_clients_are_bounded",),
    "NamedLimits.longest_frame": (
        NAMED + "test_codec.py::test_the_longest_event_is_read_and_written_and_none_longer",
    ),
    "NamedLimits.longest_name": (
        NAMED + "test_codec.py::test_the_longest_name_is_read_and_written_and_none_longer",
    ),
    "NamedLimits.events": (
        NAMED + "test_core.py::test_no_more_events_are_taken_than_may_run",
        NAMED + "test_core.py::test_as_many_events_wait_for_replies_as_may",
    ),
    "NamedLimits.client_memory": (
        NAMED + "test_core.py::test_no_more_data_is_taken_than_may_wait",
        NAMED + "test_core.py::test_what_waits_unread_is_bounded_for_each_event",
    ),
    "NamedLimits.write_buffer": (NAMED + "test_core.py::test_who_does_not_read_is_not_read",),
    "NamedLimits.idle_timeout": (NAMED + "test_core.py::test_silence_ends_it",),
    "NamedLimits.clients": (GATEWAYS + "test_named.py::test_who_emits_and_leaves_has_been_heard",),
    "RelayLimits.longest_frame": (
        RELAY + "test_sorter.py::test_a_length_above_the_limit_is_refused_from_itself_alone",
    ),
    "RelayLimits.write_buffer": (
        RELAY + "test_connection.py::test_who_does_not_read_is_dropped_and_counted",
        GATEWAYS + "test_relay.py::test_who_does_not_read_is_dropped_and_holds_nobody_up",
    ),
    "RelayLimits.patience": (
        RELAY + "test_router.py::test_a_reader_of_nothing_is_waited_for_once_and_then_dropped",
    ),
    "RelayLimits.client_memory": (
        RELAY + "test_client.py::test_nothing_is_read_while_much_is_unread",
    ),
    "RelayLimits.uuid_timeout": (RELAY + "test_connection.py::test_the_uuid_has_to_come_in_time",),
    "RelayLimits.idle_timeout": (
        RELAY + "test_connection.py::test_who_is_silent_for_long_is_closed",
    ),
    "RelayLimits.clients": (GATEWAYS + "test_relay.py::test_who_is_one_too_many_is_turned_away",),
    # Of the decoder.
    "max_bytes": ("tests/lbm/test_decoder.py::test_bytes_are_counted",),
    "max_items": (
        "tests/lbm/test_decoder_bombs.py::test_the_most_items_are_accepted_and_one_more_is_not",
    ),
    "max_depth": ("tests/lbm/test_decoder.py::test_depth",),
    "MOST_ITEMS": (MESSAGING + "test_formats.py::test_no_more_items_than_lbm_has",),
    "DEEPEST": (MESSAGING + "test_formats.py::test_cbor_that_is_no_plain_value",),
    # Ours, inside: what waits in front of a stream, a subscription, a call's reader.
    "LAST_ASYNC_ID": (
        MESSAGING + "test_answering.py::test_answers_that_nobody_reads_end_the_connection",
    ),
    "UNPAID_LIMIT": (MESSAGING + "test_inbox.py::test_what_costs_nothing_is_bounded",),
    "UNWRITTEN_PART": (
        "tests/node/test_memory.py::test_a_peer_holds_no_more_than_its_account_has",
    ),
    "ANSWER_PATIENCE": ("tests/node/test_memory.py::test_honest_calls_are_all_answered",),
    "REPLIES_MEMORY": (
        MESSAGING
        + "test_named_events.py::test_replies_that_nobody_reads_end_their_event_and_nothing_else",
        "tests/node/remote/test_emission.py::test_replies_that_nobody_reads",
    ),
    "NOTES_COUNT": (FEED + "test_an_event_has_at_most_4096_notes",),
    "WAITING_EVENTS": (FEED + "test_only_four_events_wait_on_the_connection",),
    "BUFFER": (FEED + "test_who_does_not_keep_up_loses_the_subscription",),
    "LONGEST_NAME": (
        "tests/node/test_hostile_peers.py::test_names_that_are_too_long_fall_under_no_pattern",
    ),
    "LINGERING_HANDLERS": (
        "tests/node/peer/test_calls.py::test_handlers_that_outlive_their_streams_are_bounded",
    ),
    "REMEMBERED": (
        "tests/node/trust/test_admission.py::test_what_is_remembered_of_addresses_is_bounded",
    ),
    "BURST": ("tests/node/peer/test_endpoint.py::test_strangers_do_not_fill_the_log",),
}
# Sizes of the format, and defaults of what has its line above.
NO_LIMITS: Final = {
    "FRAME_HEADER_SIZE", "RAW_OVERHEAD", "ENCRYPTED_OVERHEAD", "CHAIN_OVERHEAD", "EVENT_COST",
    "HANDSHAKE_TIMEOUT", "HALF_OPEN_CONNECTIONS", "UPDATE_AFTER_EVENTS", "UPDATE_AFTER_BYTES",
    "UPDATE_AFTER_SECONDS", "REKEY_INTERVAL", "PEER_MEMORY", "WINDOWS_PART", "IDLE_BEFORE_PING",
    "PING_TIMEOUT", "CLOSE_DRAIN", "RESUME_BUFFER", "CONTROL_EVENT",
    "role", "algorithms", "require", "limits", "network_key", "plaintext", "deliver", "padding",
    "info", "limit_loopback", "identity",
}  # fmt: skip


def listed() -> set[str]:
    """The names in the tables of limits and of settings that bound connections."""
    text = SETTINGS.read_text("utf-8")
    found = set()
    for title in ("NodeConfig", "Limits", "CoreConfig", "Fixed limits"):
        section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        found |= set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    for limits in DIALECT_LIMITS:
        section = text.partition(f"\n## {limits.__name__}\n")[2].partition("\n## ")[0]
        names = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        found |= {f"{limits.__name__}.{name}" for name in names}
    return found


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(
        each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_every_limit_that_is_listed_has_its_test() -> None:
    assert len(listed()) > 50
    assert listed() - set(EXCEEDED) - NO_LIMITS == set()
    assert {*Limits.__slots__, *NodeConfig.__slots__} - set(EXCEEDED) - NO_LIMITS == set()
    own = {
        f"{limits.__name__}.{field.name}" for limits in DIALECT_LIMITS for field in fields(limits)
    }
    assert own - set(EXCEEDED) == set()


@sweep("name", EXCEEDED)
def test_its_test_is_there(name: str) -> None:
    for test in EXCEEDED[name]:
        path, _, function = test.partition("::")
        assert function in functions_of(path), test


# Floods that no other test sends: through the core, whose answers nobody takes.


def opens(pair: Pair, between: Callable[[int], object]) -> None:
    """Open streams without end, each of which is gone before the next: no limit on streams
    helps, but what we answer and nobody reads has one."""
    payload, stream = encode({keys.LABEL: "x"}), 1
    while pair.b.state == "OPEN":
        pair.b.reports.clear()
        stream += 2
        # Sealed from time to time, as it has to be.
        pair.inject(pair.a, stream, STREAM, OPEN, payload, sealed=stream % 10_000 == 1)
        between(stream)
        # Each answer takes more than 32 bytes.
        assert stream < CONTROL_BUFFER // 16 + 2_000
    assert pair.b.code == CloseCode.OVERLOADED
    assert not pair.b.wire


def test_opens_that_the_core_refuses() -> None:
    """Memory is short, so it resets every stream at once."""
    pair = open_pair(peer_memory=1, seal_events=65_536, max_streams=1)

    def reset(stream: int) -> None:
        cells = {keys.STREAM: stream, keys.CODE: CloseCode.NORMAL}
        pair.inject(pair.a, 0, STREAM, RESET, encode(cells))

    opens(pair, reset)
    assert CONTROL_BUFFER < pair.b.core.queued_bytes < CONTROL_BUFFER + 4_096


def test_opens_that_the_application_refuses() -> None:
    """Nobody serves them, which the application says when it has looked at each."""
    pair = open_pair(seal_events=65_536, max_streams=1)

    def refuse(stream: int) -> None:
        if pair.b.state == "OPEN":
            pair.b.core.reset_stream(stream, CloseCode.NO_HANDLER)
            pair.inject(pair.a, stream, STREAM, FINISH)

    opens(pair, refuse)


# Floods of a peer that reads nothing, over a socket.

MEBIBYTE: Final = 1 << 20
MOST: Final = 16 * MEBIBYTE
LARGE: Final = 50_000
TIMES: Final = 600
BATCHES: Final = 80  # of 256 calls each
Flood = Callable[[ReferencePeer, int], object]

FLOODS: Final[dict[str, Flood]] = {
    "calls with large answers": lambda p, n: p.send(
        "Call", 1, n % 65_535 + 1, topic="parley.echo", data=bytes(LARGE)
    ),
    "calls that are never answered": lambda p, n: p.send(
        "Call", 1, n % 65_535 + 1, topic="hold", data=bytes(LARGE)
    ),
    "calls that want no answer": lambda p, n: p.send("Call", 1, 0, topic="hold", data=bytes(LARGE)),
    "calls of nobody": lambda p, n: p.send("Call", 1, n % 65_535 + 1, topic="x" * LARGE),
    "streams and their data": lambda p, n: (
        p.send("Open", 2 * n + 3, label="hold"),
        p.send_event(2 * n + 3, 0, *TYPES["Data"], bytes(LARGE)),
    ),
    "streams of nobody": lambda p, n: (
        p.send("Open", 2 * n + 3, label="x" * LARGE),
        p.send("Reset", 0, stream=2 * n + 3, code=0),
    ),
    "streams that are echoed": lambda p, n: (
        p.send("Open", 2 * n + 3, label="echo"),
        p.send_event(2 * n + 3, 0, *TYPES["Data"], bytes(LARGE)),
    ),
    "Pings": lambda p, n: [p.send("Ping", 0, id) for id in range(1, 100)],
    "notes that nobody asked for": lambda p, n: p.send("Notes", 1, 0, notes=[bytes(LARGE)]),
    "answers that nobody asked for": lambda p, n: p.send("Result", 1, 9, code=0, data=bytes(LARGE)),
    "events of an application": lambda p, n: p.send_event(1, 0, 64, 1, bytes(LARGE)),
    "subscriptions": lambda p, n: p.send("Subscribe", 1, n % 65_535 + 1, topic="news"),
    "short calls, in Batches": lambda p, n: p.send_event(1, 0, *TYPES["Batch"], short_calls(n)),
}


def short_calls(number: int) -> bytes:
    """The payload of a Batch of as many calls as it may hold, under ids of their own."""
    call = encode({keys.TOPIC: "hold", keys.DATA: bytes(60)})
    first = number * BATCH_COUNT
    ids = [(first + count) % 65_535 + 1 for count in range(BATCH_COUNT)]
    return serialise_batch((id, SIM, CALL, call) for id in ids)


class Forgetful(list[Any]):
    """Keeps nothing: what the test would keep of what was sent is not our node's."""

    def append(self, item: object) -> None:
        return


def flooding(name: str) -> Callable[[ReferencePeer], int]:
    """Send and never read, until our node ends it, or takes no more for half a second."""

    flood, times = FLOODS[name], BATCHES if "Batches" in name else TIMES

    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        peer.channel.sent = Forgetful()
        peer.channel.sock.settimeout(0.5)
        for count in range(times):
            try:
                flood(peer, count)
            except (ConnectionLost, TimeoutError):
                return count
        return times

    return act


@pytest.mark.anyio
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_is_bounded_and_hurts_nobody_else(name: str) -> None:
    """Thirty megabytes and more; our node holds a fraction of it, and serves others meanwhile.
    An echo that waits to be written holds a piece for each stream, whence the few streams."""
    limits = Limits(max_streams=64)
    config = our_config(peer_memory=4 * MEBIBYTE, write_buffer=MEBIBYTE, limits=limits)
    async with with_bystander(config) as ours:
        ours.node.topic("news")
        ours.called = Forgetful()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await ours.meet(flooding(name), config=their_config())
            gc.collect()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak - before < MOST
        await ours.until(lambda: len(ours.node.peers) == 1)
