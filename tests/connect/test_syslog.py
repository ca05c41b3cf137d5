"""SyslogSource: what messages become, how TCP is framed, and what happens when it is behind."""

from __future__ import annotations

import asyncio
import datetime
import socket
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.connect.driving import Store, batches_of, drive, eventually, opened

from strandline.connect.sources.syslog import SyslogSource
from strandline.connect.sources.syslog_messages import SYSLOG_SCHEMA, SyslogFrames, parse_syslog

UTC = datetime.UTC
NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)


def parse(line: str | bytes, zone: str = "UTC", now: datetime.datetime = NOW) -> dict[str, Any]:
    """Return the fields that are set."""
    raw = line.encode() if isinstance(line, str) else line
    value = parse_syslog(raw, None, now, ZoneInfo(zone))
    assert list(value) == [each.name for each in SYSLOG_SCHEMA.fields]
    return {name: each for name, each in value.items() if each is not None}


def test_rfc_5424() -> None:
    line = (
        "<165>1 2003-10-11T22:14:15.003+02:00 mymachine.example.com evntslog 12 ID47 "
        '[exampleSDID@32473 iut="3" eventSource="App \\"x\\" \\] \\\\"][ip@1 a="1" a="2"] \ufeffAn application ☃'
    )
    assert parse(line) == {
        "format": "rfc5424",
        "facility": 20,
        "severity": 5,
        "timestamp": datetime.datetime(2003, 10, 11, 20, 14, 15, 3000, tzinfo=UTC),
        "host": "mymachine.example.com",
        "app": "evntslog",
        "procid": "12",
        "msgid": "ID47",
        "structured_data": {
            "exampleSDID@32473": {"iut": "3", "eventSource": 'App "x" ] \\'},
            "ip@1": {"a": "1,2"},
        },
        "message": "An application ☃",
    }
    assert parse("<0>1 - - - - - -") == {"format": "rfc5424", "facility": 0, "severity": 0, "message": ""}
    assert parse("<0>1 - - - - - - ")["message"] == ""


def test_rfc_3164_and_its_variants() -> None:
    assert parse("<34>Oct 11 22:14:15 mymachine su[77]: 'su root' failed: on /dev/pts/8") == {
        "format": "rfc3164",
        "facility": 4,
        "severity": 2,
        "timestamp": datetime.datetime(2025, 10, 11, 22, 14, 15, tzinfo=UTC),
        "host": "mymachine",
        "app": "su",
        "procid": "77",
        "message": "'su root' failed: on /dev/pts/8",
    }
    without_host = parse("<13>Jan  1 11:00:00 cron[5]: done", zone="Europe/Berlin")
    assert without_host["timestamp"] == datetime.datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert ("host" not in without_host, without_host["app"], without_host["message"]) == (True, "cron", "done")
    iso = parse("<13>2026-01-01T11:00:00.5+01:00 box app: hello")
    assert (iso["timestamp"].astimezone(UTC).hour, iso["host"], iso["app"], iso["message"]) == (
        10,
        "box",
        "app",
        "hello",
    )
    assert parse("<13>just a text: x") == {
        "format": "rfc3164",
        "facility": 1,
        "severity": 5,
        "message": "just a text: x",
    }
    assert parse("<13>Feb 31 11:00:00 box app: x")["message"] == "Feb 31 11:00:00 box app: x"
    assert parse("<13>Feb 29 11:00:00 box app: x")["timestamp"].year == 2024
    eve = datetime.datetime(2025, 12, 31, 23, 59, tzinfo=UTC)
    assert parse("<13>Jan  1 00:00:01 box app: x", now=eve)["timestamp"].year == 2026
    assert parse("<13>Dec 31 23:59:60 box app: x", now=NOW)["timestamp"].year == 2025


@pytest.mark.parametrize("line", [b"hello", b"<192>1 x", b"<13", b"", b"<999>x", b"<-1>x", b"\xff\xfe"])
def test_lines_that_are_no_syslog_are_kept_raw(line: bytes) -> None:
    found = parse(line)
    assert (found["format"], found["raw"], found["message"]) == ("raw", line, line.decode("utf-8", "replace"))


def test_bytes_that_are_no_text_are_kept_beside_the_fields() -> None:
    found = parse(b"<13>1 - host app - - - caf\xe9")
    assert (found["format"], found["message"], found["raw"]) == (
        "rfc5424",
        "caf\ufffd",
        b"<13>1 - host app - - - caf\xe9",
    )


@given(st.text() | st.text(alphabet='<>[]="\\ 1-:aJan0Z', min_size=5).map(lambda text: f"<13>1 - a b c d {text}"))
def test_any_line_becomes_a_record(text: str) -> None:
    assert parse(text.encode("utf-8", "surrogatepass"))["message"] is not None


@settings(max_examples=50)
@given(st.data())
def test_frames_are_the_same_however_they_arrive(data: Any) -> None:
    messages = data.draw(st.lists(st.text(alphabet="<13>ab c☃1", min_size=1, max_size=20).map(str.encode), max_size=6))
    stream, expected = b"", []
    for message in messages:
        if message[:1] != b"<" or data.draw(st.booleans()):
            stream += b"%d %b" % (len(message), message)
        else:
            stream += message + data.draw(st.sampled_from([b"\n", b"\r\n"]))
        expected.append(message)
    frames = SyslogFrames(100)
    found, rest = [], stream
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += frames.feed(rest[:size])
        rest = rest[size:]
    assert found + frames.end() == expected


def test_frames_that_are_too_long_are_cut_or_refused() -> None:
    frames = SyslogFrames(10)
    assert frames.feed(b"<1>" + b"x" * 50) == [b"<1>xxxxxxx"]
    assert frames.feed(b"y" * 50 + b"\n<1>next\n") == [b"<1>next"]
    assert frames.too_long == 1
    assert frames.feed(b"2024-01-01 no count\n") == [b"2024-01-01"]
    with pytest.raises(ValueError, match="a message of 99999 bytes"):
        frames.feed(b"99999 x")
    half = SyslogFrames(10)
    assert half.feed(b"9 <1>half") == []
    assert half.end() == []


def source(**given_settings: str) -> SyslogSource:
    properties = {"topic": "logs", "udp.listen": "127.0.0.1:0", "tcp.listen": "127.0.0.1:0"}
    properties |= {name.replace("_", "."): value for name, value in given_settings.items()}
    assert SyslogSource.Config.errors_of(properties) == {}
    return SyslogSource(SyslogSource.Config(properties))


def holds(count: int) -> Callable[[Store], bool]:
    return lambda store: len(store.records) >= count


async def test_datagrams_and_connections_are_received() -> None:
    store = Store()
    async with opened(source()) as syslog:
        assert isinstance(syslog, SyslogSource)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for line in (b"<13>1 - box app 1 - - one\n", b"not syslog"):
                udp.sendto(line, ("127.0.0.1", syslog.udp_port))
        with socket.create_connection(("127.0.0.1", syslog.tcp_port)) as tcp:
            tcp.sendall(b"<13>1 - box app 2 - - two\n25 <13>1 - box app 3 - - a\nb<13>1 - box app 4 - - end")
        batches = batches_of(syslog, store)
        while not holds(5)(store):
            store.commit(await anext(batches))
        await batches.aclose()
    assert sorted(value["message"] for value in store.values) == ["a\nb", "end", "not syslog", "one", "two"]
    assert {value["remote"] for value in store.values} == {"127.0.0.1"}
    assert {record.key for record in store.records} == {"box", "127.0.0.1"}
    assert not SyslogSource.exactly_once


async def test_behind_datagrams_are_dropped_and_counted_while_connections_wait() -> None:
    store = Store()
    async with opened(source(queue_max_messages="3", batch_max_records="2")) as syslog:
        assert isinstance(syslog, SyslogSource)
        sender = socket.create_connection(("127.0.0.1", syslog.tcp_port))
        sender.sendall(b"".join(b"<13>tcp %d\n" % number for number in range(20)))
        await eventually(lambda: len(syslog._messages._queue) == 3)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for _ in range(4):
                udp.sendto(b"<13>udp", ("127.0.0.1", syslog.udp_port))
        await eventually(lambda: syslog.dropped == 4)
        batches = batches_of(syslog, store)
        while not holds(20)(store):
            store.commit(await anext(batches))
        await batches.aclose()
        sender.close()
    assert [value["message"] for value in store.values] == [f"tcp {number}" for number in range(20)]


async def test_too_many_connections_and_broken_frames_are_closed() -> None:
    async with opened(source(connections_max="1", udp_listen="")) as syslog:
        assert isinstance(syslog, SyslogSource)
        with socket.create_connection(("127.0.0.1", syslog.tcp_port), timeout=60) as first:
            await eventually(lambda: len(syslog._tasks) == 1)
            with socket.create_connection(("127.0.0.1", syslog.tcp_port), timeout=60) as second:
                assert await asyncio.to_thread(second.recv, 1) == b""
            first.sendall(b"9999999 x")
            assert await asyncio.to_thread(first.recv, 1) == b""


async def test_a_task_that_has_no_message_can_be_stopped() -> None:
    async with asyncio.timeout(5):
        await drive(source(), Store(), until=lambda _: True)
    assert "tcp.listen" in SyslogSource.Config.errors_of({"topic": "t", "udp.listen": "", "tcp.listen": ""})
