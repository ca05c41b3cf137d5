"""`strandline topic hot`: the heaviest keys of a topic, and how unevenly its partitions are filled."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.advice.key_skew import KeySkew, key_words
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.conversation import own_client
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
    TopicName,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.topic.key_reading import TOP_DEFAULT, read_key_skew

KEY_SHOWN_MAX = 60


def hot(
    name: TopicName,
    top: Annotated[int, typer.Option("--top", "-n", metavar="N", min=1, max=1000, help="How many keys.")] = TOP_DEFAULT,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only records from then on, for example 1h or 10m-ago."),
    ] = None,
    partitions: Partitions = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Name the heaviest keys of a topic by records and bytes, the partitions that are too full, and what to do.

    A bounded sample is read: up to 16 places in each partition, at most 16 MiB together. A topic that is smaller is
    read whole. Needs the right to read it; works on any Kafka cluster.
    """
    since_ms = None if since is None else _time_ms(since)
    cluster = connect(bootstrap, properties, timeout)
    with own_client(cluster, f"cannot read {name}") as client:
        found = read_key_skew(client, name, top=top, since_ms=since_ms, partitions=partitions)
    output = Output(as_json=as_json)
    if as_json:
        output.json_line(found.as_object())
    else:
        _show(output, found)


def _time_ms(text: str) -> int:
    try:
        position = parse_position(text, now_ms=int(time.time() * 1000))
    except ValueError as error:
        raise UsageFailed(str(error)) from None
    if not isinstance(position, TimePosition):
        raise UsageFailed(f"--since {text}: expected a time", hint="for example 1h, 10m-ago or 2026-03-01T12:00:00Z")
    return position.timestamp_ms


def _show(output: Output, found: KeySkew) -> None:
    how = "every record was counted" if found.is_whole else "estimated from a sample"
    output.line(f"{found.topic}: {count(found.sampled, 'record')} read, {how}")
    output.line("")
    columns = ["key", "records", "bytes", "margin", "partitions"]
    rows = [
        [
            _cut(key_words(each.key)),
            f"{each.records_share:.1%}",
            f"{each.bytes_share:.1%}",
            f"±{each.margin:.1%}" if each.margin else "-",
            ",".join(map(str, each.partitions[:8])) + (",..." if len(each.partitions) > 8 else ""),
        ]
        for each in found.keys
    ]
    output.table(columns, rows)
    output.line("")
    output.table(
        ["partition", "records", "bytes", "heaviest key", "its share"],
        [
            [
                each.partition,
                f"{each.records_share:.1%}",
                f"{each.bytes_share:.1%}",
                _cut(key_words(each.top_key)) if each.sampled else "-",
                f"{each.top_share:.1%}" if each.sampled else "-",
            ]
            for each in found.partitions
        ],
    )
    output.line("")
    for finding in found.findings:
        output.hanging("- ", "  ", finding)


def _cut(words: str) -> str:
    return words if len(words) <= KEY_SHOWN_MAX else f"{words[: KEY_SHOWN_MAX - 3]}..."
