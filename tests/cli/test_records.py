"""`strandline produce` and `strandline consume` against a broker."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest
from tests.cli.conftest import TIMEOUT_S, CommandLine


def test_rows_of_json_are_values_whatever_is_printed(cli: CommandLine, topic: str) -> None:
    row = b'{"amount": 7, "customer": "ada"}'
    (summary,) = cli.ok("produce", topic, "--json", stdin=row).objects
    assert summary["records"] == 1
    assert cli.ok("consume", topic).stdout == row + b"\n"
    refused = cli.run("produce", topic, "--from-json", stdin=row)
    assert "unknown field 'amount'" in refused.stderr
    assert "leave out --from-json" in refused.stderr


def test_lines_go_in_and_come_out(cli: CommandLine, topic: str) -> None:
    written = cli.ok("produce", topic, "-p", "1", stdin=b"one\n\ntwo\xff\x00\nthree")
    assert written.lines == [f"{topic}-1: 4 at offsets 0..3"]
    assert cli.ok("consume", topic).stdout == b"one\n\ntwo\xff\x00\nthree\n"


def test_keys_headers_and_formats(cli: CommandLine, topic: str) -> None:
    cli.ok("produce", topic, "-K", ":", "-H", "source=web", "-H", "empty=", "-p", "2", stdin=b"a:1:1\nb:\n")
    shown = cli.ok("consume", topic, "-F", r"%t/%p/%o %k=%s (%K %S) %h\n").lines
    assert shown == [f"{topic}/2/0 a=1:1 (1 3) source=web,empty=NULL", f"{topic}/2/1 b= (1 0) source=web,empty=NULL"]


def test_files_are_read_in_their_order(cli: CommandLine, topic: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(f"{name} 1\n{name} 2\n".encode())
    cli.ok("produce", topic, str(tmp_path / "one"), "-", str(tmp_path / "two"), "-p", "0", stdin=b"between\n")
    assert cli.ok("consume", topic).lines == ["one 1", "one 2", "between", "two 1", "two 2"]
    missing = cli.run("produce", topic, str(tmp_path / "three"))
    assert (missing.status, "there is no file" in missing.stderr) == (3, True)


def test_json_copies_a_topic_byte_for_byte(cli: CommandLine, topic: str) -> None:
    lines = [
        b'{"key": "k", "value": "v", "headers": [{"key": "h", "value_base64": "/w=="}], "partition": 1}',
        b'{"key_base64": "//4=", "value_base64": "AAEC", "partition": 1, "timestamp": 1794717420597}',
        b'{"key": "k", "value": null, "partition": 1}',
        b"",
        b'{"value": {"total": 9.5}, "partition": 1}',
    ]
    cli.ok("produce", topic, "--from-json", stdin=b"\n".join(lines))
    original = cli.ok("consume", topic, "--json")
    assert [record["offset"] for record in original.objects] == [0, 1, 2, 3]
    assert original.objects[0]["headers"] == [{"key": "h", "value_base64": "/w=="}]
    assert (original.objects[1]["key_base64"], original.objects[1]["timestamp"]) == ("//4=", 1794717420597)
    assert original.objects[2]["value"] is None
    assert original.objects[3]["value"] == '{"total":9.5}'
    cli.ok("topic", "create", f"{topic}-copy", "-p", "1")
    (summary,) = cli.ok(
        "produce", f"{topic}-copy", "--from-json", "--json", "--repartition", stdin=original.stdout
    ).objects
    assert (summary["records"], summary["first_offset"], summary["last_offset"]) == (4, 0, 3)
    copied = cli.ok("consume", f"{topic}-copy", "--json").objects
    fields = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", "offset")
    assert [[r.get(f) for f in fields] for r in copied] == [[r.get(f) for f in fields] for r in original.objects]


def test_what_consume_prints_can_be_read_back(cli: CommandLine, topic: str) -> None:
    cli.ok("topic", "alter", topic, "-c", "retention.ms=-1")
    cli.ok("produce", topic, "-K", r"\t", "-p", "1", "--timestamp", "2026-03-01T12:00:00Z", stdin=b"a\t1\nb\t2\n")
    printed = cli.ok("consume", topic, "--json")
    assert [(r["key"], r["timestamp"]) for r in printed.objects] == [("a", 1772366400000), ("b", 1772366400000)]
    written = cli.ok("produce", topic, "--from-json", "-p", "0", "--codec", "zstd", stdin=printed.stdout)
    assert written.lines == [f"{topic}-0: 2 at offsets 0..1"]
    again = cli.ok("consume", topic, "-p", "0", "-F", r"%k %s %T\n").lines
    assert again == ["a 1 1772366400000", "b 2 1772366400000"]


def test_where_compares_inside_json(cli: CommandLine, topic: str) -> None:
    rows = [b'{"amount": 99, "to": {"city": "Ulm"}}', b'{"amount": 100.5, "to": {"city": "Bonn"}}', b"no JSON"]
    cli.ok("produce", topic, "-p", "0", "-H", "tries=3", stdin=b"\n".join(rows))
    for condition, offset in [
        ("value.amount>100", "1"),
        ("value.amount < 100", "0"),
        ("value.to.city == 'Bonn'", "1"),
        ("value.to.city!=Bonn", "0 2"),
        ("headers.tries>=3", "0 1 2"),
    ]:
        assert " ".join(cli.ok("consume", topic, "-F", r"%o\n", "--where", condition).lines) == offset, condition


def test_a_group_passes_over_what_is_filtered_out(cli: CommandLine, topic: str) -> None:
    cli.ok("produce", topic, "-p", "0", stdin=b"".join(b"%d\n" % n for n in range(10)))
    shown = cli.ok("consume", topic, "-g", f"{topic}-group", "-w", "value~=[36]", "-n", "1").lines
    assert shown == ["3"]
    assert cli.ok("consume", topic, "-g", f"{topic}-group", "-w", "value~=[36]").lines == ["6"]


def test_a_file_shows_how_far_it_got_on_a_terminal(cli: CommandLine, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(20)))
    shown = cli.on_terminal(["produce", topic, str(tmp_path / "lines"), "-p", "0", "--rate", "20"]).stdout
    assert b"producing" in shown
    assert b"records acknowledged" in shown
    assert f"{topic}-0: 20 at offsets 0..19".encode() in shown


def test_nothing_is_drawn_over_what_a_person_types(cli: CommandLine, topic: str) -> None:
    shown = cli.on_terminal(["produce", topic, "-p", "0", "--rate", "4"], typed=b"a\nb\nc\nd\n\x04").stdout
    assert b"producing" not in shown
    assert f"{topic}-0: 4 at offsets 0..3".encode() in shown


def test_tombstones(cli: CommandLine, topic: str) -> None:
    cli.ok("produce", topic, "-k", "x", "-Z", "-p", "0", stdin=b"value\n\n")
    assert cli.ok("consume", topic, "-F", r"%k %S\n").lines == ["x 5", "x -1"]


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        ((), range(10)),
        (("--from", "7"), range(7, 10)),
        (("--from", "-3"), range(7, 10)),
        (("--from", "latest"), range(0)),
        (("--from", "99"), range(0)),
        (("--from", "@1700000004000"), range(4, 10)),
        (("--from", "2023-11-14T22:13:25Z"), range(5, 10)),
        (("--from", "1h-ago"), range(0)),
        (("--to", "4"), range(4)),
        (("--to", "99"), range(10)),
        (("--to", "earliest"), range(0)),
        (("--to", "-3"), range(7)),
        (("--to", "@1700000004000"), range(4)),
        (("--from", "2", "--to", "2023-11-14T22:13:25Z"), range(2, 5)),
        (("--from", "5", "--to", "3"), range(0)),
        (("--to", "1h-ago"), range(10)),
        (("--where", "value~=[2468]"), range(2, 10, 2)),
        (("--where", "value~=[2468]", "-w", "value!=4", "-n", "2"), range(2, 7, 4)),
        (("--where", "value=3", "--last", "2"), range(0)),
        (("--where", "value>7"), range(8, 10)),
        (("--where", "offset >= 3", "-w", "value!=9", "-w", "timestamp<=2023-11-14T22:13:25Z"), range(3, 6)),
        (("--where", "partition=0"), range(0)),
        (("--grep", "[13]"), range(1, 4, 2)),
        (("--last", "2"), range(8, 10)),
        (("--last", "50"), range(10)),
        (("--count", "4"), range(4)),
        (("--from", "2", "-n", "3"), range(2, 5)),
        (("--partition", "1"), range(10)),
        (("--partition", "0"), range(0)),
    ],
)
def test_begins_and_ends_where_it_is_told(
    cli: CommandLine, topic_of_ten: str, arguments: tuple[str, ...], offsets: range
) -> None:
    assert cli.ok("consume", topic_of_ten, "-F", r"%o\n", *arguments).lines == [str(offset) for offset in offsets]


@pytest.fixture(scope="module")
def topic_of_ten(bootstrap: str) -> str:
    cli, topic = CommandLine(bootstrap), f"cli-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", topic, "--partitions", "3", "-c", "retention.ms=-1")
    lines = [f'{{"value": "{n}", "partition": 1, "timestamp": {1_700_000_000_000 + n * 1000}}}' for n in range(10)]
    cli.ok("produce", topic, "--from-json", stdin="\n".join(lines).encode())
    return topic


def test_the_last_ones_are_the_newest_of_all_partitions(cli: CommandLine, topic: str) -> None:
    cli.ok("topic", "alter", topic, "-c", "retention.ms=-1")
    lines = [f'{{"value": "{n}", "partition": {n % 3}, "timestamp": {1_700_000_000_000 + n}}}' for n in range(20)]
    cli.ok("produce", topic, "--from-json", stdin="\n".join(lines).encode())
    assert cli.ok("consume", topic, "--last", "5").lines == ["15", "16", "17", "18", "19"]


def test_a_group_commits_what_was_printed(cli: CommandLine, topic: str) -> None:
    cli.ok("produce", topic, "-p", "0", stdin=b"".join(b"%d\n" % n for n in range(10)))
    group = f"{topic}-group"
    assert cli.ok("consume", topic, "-g", group, "-n", "4").lines == ["0", "1", "2", "3"]
    assert cli.ok("consume", topic, "-g", group).lines == ["4", "5", "6", "7", "8", "9"]
    assert cli.ok("consume", topic, "-g", group).lines == []
    assert cli.ok("consume", topic, "-g", f"{group}-new", "--from", "latest").lines == []


def test_following_sees_what_comes_later_and_ends_quietly(cli: CommandLine, topic: str) -> None:
    cli.ok("produce", topic, "-p", "0", stdin=b"old\n")
    following = cli.start("consume", topic, "-f", "--from", "earliest")
    assert following.stdout is not None
    assert following.stdout.readline() == b"old\n"
    cli.ok("produce", topic, "-p", "1", stdin=b"new\n")
    assert following.stdout.readline() == b"new\n"
    following.send_signal(signal.SIGINT)
    assert following.communicate(timeout=TIMEOUT_S) == (b"", b"")
    assert following.returncode == 0


def test_a_reader_that_has_enough_ends_it_quietly(cli: CommandLine, topic: str) -> None:
    # More than a pipe holds, so that writing must fail.
    cli.ok("produce", topic, "-p", "0", stdin=b"".join(b"%0100d\n" % n for n in range(5000)))
    reading = cli.start("consume", topic)
    assert reading.stdout is not None
    assert reading.stderr is not None
    reading.stdout.readline()
    reading.stdout.close()
    assert reading.wait(TIMEOUT_S) == 0
    assert reading.stderr.read() == b""
    reading.stderr.close()


def test_a_bad_line_is_named_and_the_ones_before_it_are_written(cli: CommandLine, topic: str) -> None:
    ended = cli.run("produce", topic, "--from-json", "--json", stdin=b'{"value": "1", "partition": 0}\n{"value": \n')
    assert ended.status == 1
    assert "stdin, line 2: not JSON" in ended.stderr
    assert [summary["records"] for summary in ended.objects] == [1]
    assert cli.ok("consume", topic).lines == ["1"]
    assert "no key separator" in cli.run("produce", topic, "-K", ":", stdin=b"nokey\n").stderr


def test_a_refused_record_is_an_error_and_the_others_are_told(cli: CommandLine, topic: str) -> None:
    small = f"{topic}-small"
    cli.ok("topic", "create", small, "-p", "2", "-c", "max.message.bytes=1000")
    # A partition of its own for the large one: a client puts records of one partition into one batch.
    lines = [b'{"value": "fits", "partition": 0}', b'{"value": "%s", "partition": 1}' % (b"x" * 5000)]
    ended = cli.run("produce", small, "--from-json", "--json", stdin=b"\n".join(lines))
    assert ended.status == 1
    assert "1 of 2 records were not written" in ended.stderr
    assert [(summary["partition"], summary["records"]) for summary in ended.objects] == [(0, 1)]
    assert cli.ok("consume", small).lines == ["fits"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(cli: CommandLine, topic: str, codec: str) -> None:
    lines = b"".join(b"%d same same same same\n" % n for n in range(200))
    cli.ok("produce", topic, "-p", "0", "-z", codec, stdin=lines)
    assert cli.ok("consume", topic).stdout == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(cli: CommandLine, topic: str, acks: str) -> None:
    written = cli.ok("produce", topic, "-p", "0", "--acks", acks, stdin=b"a\nb\n").lines
    assert written == [
        f"{topic}-0: 2 sent, offsets unknown (acks=0)" if acks == "0" else f"{topic}-0: 2 at offsets 0..1"
    ]
    follower = cli.ok("consume", topic, "-f", "--from", "0", "-n", "2")
    assert follower.lines == ["a", "b"]


def test_what_does_not_exist_is_not_made(cli: CommandLine, topic: str) -> None:
    typo = f"{topic}-typo"
    assert cli.run("produce", typo, stdin=b"x\n").status == 3
    assert cli.run("consume", typo).status == 3
    assert cli.run("consume", topic, "-p", "3").status == 3
    assert cli.run("produce", topic, "-p", "3", stdin=b"x\n").status == 3
    assert typo not in {listed["topic"] for listed in cli.ok("topic", "list", "--json").objects}
    cli.ok("produce", typo, "--auto-create", stdin=b"x\n")
    assert cli.ok("consume", typo).lines == ["x"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "T", "--from", "soon"),
        ("consume", "T", "--to", "soon"),
        ("consume", "T", "--to", "5", "--follow"),
        ("consume", "T", "--to", "5", "--group", "g"),
        ("consume", "T", "--where", "offset=five"),
        ("consume", "T", "--where", "value.amount=>100"),
        ("consume", "T", "--grep", "["),
        ("consume", "T", "--last", "3", "--from", "0"),
        ("consume", "T", "--last", "3", "--group", "g"),
        ("consume", "T", "--group", "g", "--partition", "0"),
        ("consume", "T", "--group", "g", "--from", "5"),
        ("consume", "T", "--json", "--format", "%s"),
        ("consume", "T", "--format", "%y"),
        ("produce", "T", "--from-json", "--key-separator", ":"),
        ("produce", "T", "--acks", "2"),
        ("produce", "T", "--codec", "rar"),
        ("produce", "T", "--timestamp", "latest"),
        ("produce", "T", "--timestamp", "soon"),
        ("produce", "T", "--key-separator", ""),
        ("produce", "T", "--header", "=x"),
        ("produce", "T", "-X", "nonsense"),
        ("consume",),
        ("frobnicate",),
    ],
)
def test_wrong_usage_is_2_and_explained(cli: CommandLine, topic_of_ten: str, arguments: tuple[str, ...]) -> None:
    ended = cli.run(*(topic_of_ten if argument == "T" else argument for argument in arguments))
    assert ended.status == 2
    assert ended.stderr
    assert ended.stdout == b""
