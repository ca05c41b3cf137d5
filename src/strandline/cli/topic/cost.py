"""`strandline topic cost`: what a topic costs a month, as it is and as it could be kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from strandline.advice.storage_cost import KindCost, Prices, TopicLoad, assumptions, changed_prices, costs
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect
from strandline.cli.common.conversation import own_client
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, TopicName
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import size
from strandline.cli.common.progress import Progress
from strandline.cli.config.access import Target, read_entries
from strandline.cli.topic.topics import described, log_sizes, look_up_offsets, records_between
from strandline.client.cluster_client import READ_UNCOMMITTED, ClusterClient
from strandline.config.properties import parse_properties
from strandline.documents.units import parse_duration_ms, parse_size
from strandline.ids import TopicPartition

MEASURE_S: Final = 5.0
_STEP_S: Final = 0.25
_EARLIEST_LOCAL: Final = -4


def cost(
    name: TopicName,
    measure: Annotated[
        float, typer.Option("--measure", metavar="SECONDS", min=0.5, help="How long the rate is measured.")
    ] = MEASURE_S,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="SIZE", help="Bytes a second, for example 10MB; instead of measuring."),
    ] = None,
    record_size: Annotated[
        str | None, typer.Option("--record-size", metavar="SIZE", help="Bytes of a record; instead of measuring.")
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="TIME", help="As if retention were so long, for example 90d.")
    ] = None,
    local_retention: Annotated[
        str | None,
        typer.Option("--local-retention", metavar="TIME", help="As if a tiered topic kept so much on its disks."),
    ] = None,
    reads: Annotated[
        float, typer.Option("--reads", min=0.0, help="How often each record is read from the store later.")
    ] = 1.0,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Nodes that write objects. Default: all.")] = None,
    zones: Annotated[int, typer.Option("--zones", min=1, help="Zones of the cluster; 1 makes traffic free.")] = 3,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="How often a node writes an object of object topics.")
    ] = "250ms",
    disk_price: Annotated[
        float | None, typer.Option("--disk-price", min=0.0, help="US dollars for a GB of local disk and month.")
    ] = None,
    zone_price: Annotated[
        float | None, typer.Option("--zone-price", min=0.0, help="US dollars for a GB between zones, both ways.")
    ] = None,
    prices_file: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="A properties file with other prices.")
    ] = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", metavar="NAME=DOLLARS", help="Another price. May be repeated.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Estimate requests, bytes and money per month of a topic that is kept locally, tiered, or in objects.

    The rate is measured for some seconds, or given. All assumptions are printed with the result.
    """
    prices = _prices(prices_file, price, disk_price, zone_price)
    given = {
        "retained_s": _seconds(retention, "--retention"),
        "local_retained_s": _seconds(local_retention, "--local-retention"),
        "interval_s": _seconds(interval, "--interval"),
    }
    rates = (_bytes(rate, "--rate"), _bytes(record_size, "--record-size"))
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    with own_client(cluster, f"cannot measure {name}") as client:
        load, is_tiered = _load(cluster, client, name, rates, measure, given, reads=reads, zones=zones, nodes=nodes)
    _show(output, name, load, prices, costs(load, prices), kind="tiered" if is_tiered else "local")
    output.flush()


def _prices(file: Path | None, more: list[str] | None, disk: float | None, zone: float | None) -> Prices:
    prices = Prices()
    try:
        if file is not None:
            prices = changed_prices(prices, parse_properties(file.read_text(encoding="utf-8")))
        prices = changed_prices(prices, key_values(more, option="--price"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFailed(f"--prices {file} cannot be read: {error}") from None
    except ValueError as error:
        raise UsageFailed(str(error)) from None
    flags = {"disk_gb_month": disk, "inter_zone_gb": zone}
    return changed_prices(prices, {name: str(value) for name, value in flags.items() if value is not None})


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration_ms(text) / 1000
    except ValueError as error:
        raise UsageFailed(f"{option}: {error}") from None
    if not seconds:
        raise UsageFailed(f"{option} {text} is no time; write for example 250ms or 7d")
    return seconds


def _bytes(text: str | None, option: str) -> int | None:
    try:
        return None if text is None else parse_size(text.removesuffix("/s"))
    except ValueError as error:
        raise UsageFailed(f"{option}: {error}") from None


def _load(
    cluster: Cluster,
    client: ClusterClient,
    name: str,
    rates: tuple[int | None, int | None],
    measure_s: float,
    given: dict[str, float | None],
    *,
    reads: float,
    zones: int,
    nodes: int | None,
) -> tuple[TopicLoad, bool]:
    """Return what a topic does and how it is set, and whether it is tiered."""
    admin = cluster.admin()
    topic = described(cluster, admin, name)
    entries = read_entries(cluster, admin, Target("topic", name)) or {}
    settings = {key: entry.value or "" for key, entry in entries.items()}
    places = [(name, each.id) for each in topic.partitions]
    ends = _ends(cluster, admin, places)
    starts = look_up_offsets(cluster, admin, places, admin_api().OffsetSpec.earliest())
    is_tiered = settings.get("remote.storage.enable") == "true"
    local = _local_starts(client, places) if is_tiered else starts
    bytes_per_s, record_bytes = rates
    local_records = records_between((local[place], ends[place]) for place in places)
    if record_bytes is None:
        sizes = log_sizes(cluster, topic) or {}
        if local_records:
            record_bytes = max(1, round(sum(sizes.values()) / local_records))
        elif bytes_per_s is None:
            raise CommandFailed(
                f"{name} holds no record, so nothing can be measured", hint="say --rate and --record-size"
            )
    if bytes_per_s is None:
        records_per_s = _measured(cluster, admin, places, ends, measure_s)
        byte_rate = records_per_s * (record_bytes or 0)
    else:
        byte_rate = float(bytes_per_s)
        records_per_s = byte_rate / (record_bytes or 1)
    stored = records_between((starts[place], ends[place]) for place in places) * (record_bytes or 0)
    retained_s = given["retained_s"] or _retained_s(settings, "retention", byte_rate, len(places))
    local_retained_s = given["local_retained_s"] or _retained_s(settings, "local.retention", byte_rate, len(places))
    load = TopicLoad(
        byte_rate,
        records_per_s,
        retained_s,
        stored,
        local_retained_s if local_retained_s is not None else retained_s,
        len(places),
        max(len(each.replicas) for each in topic.partitions),
        int(settings.get("segment.bytes") or 1 << 30),
        float(settings.get("segment.ms") or 604_800_000) / 1000,
        nodes=nodes or client.broker_count or 1,
        zones=zones,
        reads=reads,
        interval_s=given["interval_s"] or 0.25,
    )
    return load, is_tiered


def _retained_s(settings: dict[str, str], name: str, bytes_per_s: float, partitions: int) -> float | None:
    """Return how long records stay by the time and the size of a retention; None for ever, or where it says nothing."""
    limits = []
    if (ms := int(settings.get(f"{name}.ms") or -1)) >= 0:
        limits.append(ms / 1000)
    if (most := int(settings.get(f"{name}.bytes") or -1)) >= 0 and bytes_per_s > 0:
        limits.append(most * partitions / bytes_per_s)
    return min(limits, default=None)


def _ends(cluster: Cluster, admin: Any, places: list[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    return look_up_offsets(cluster, admin, places, admin_api().OffsetSpec.latest())


def _local_starts(client: ClusterClient, places: list[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    wanted = {TopicPartition(*place): _EARLIEST_LOCAL for place in places}
    found = client.list_offsets(wanted, isolation_level=READ_UNCOMMITTED)
    return {(topic, index): offset for (topic, index), offset in found.items()}


def _measured(
    cluster: Cluster,
    admin: Any,
    places: list[tuple[str, int]],
    before: dict[tuple[str, int], int | None],
    measure_s: float,
) -> float:
    """Return records a second of a topic."""
    began_s = time.monotonic()
    with Progress("measuring", total=round(measure_s * 10), unit="tenths of a second") as progress:
        while (passed_s := time.monotonic() - began_s) < measure_s:
            progress.reached(round(passed_s * 10))
            time.sleep(min(_STEP_S, measure_s - passed_s))
    after = _ends(cluster, admin, places)
    return records_between((before[place], after[place]) for place in places) / (time.monotonic() - began_s)


def _show(output: Output, name: str, load: TopicLoad, prices: Prices, found: list[KindCost], *, kind: str) -> None:
    if output.as_json:
        for each in found:
            output.json_line(
                {
                    "topic": name,
                    "kind": each.kind,
                    "is_now": each.kind == kind,
                    "put_requests": round(each.put_requests),
                    "get_requests": round(each.get_requests),
                    "store_bytes": round(each.store_bytes),
                    "disk_bytes": round(each.disk_bytes),
                    "inter_zone_bytes": round(each.inter_zone_bytes),
                    "request_dollars": round(each.request_cost, 4),
                    "store_dollars": round(each.store_cost, 4),
                    "disk_dollars": round(each.disk_cost, 4),
                    "inter_zone_dollars": round(each.inter_zone_cost, 4),
                    "total_dollars": round(each.total, 4),
                    "bytes_per_second": round(load.bytes_per_s),
                    "records_per_second": round(load.records_per_s, 3),
                    "assumptions": assumptions(load, prices),
                }
            )
        return
    rows = [
        (
            f"{each.kind}{' (now)' if each.kind == kind else ''}",
            f"{each.put_requests:,.0f}",
            f"{each.get_requests:,.0f}",
            size(round(each.store_bytes)),
            size(round(each.disk_bytes)),
            size(round(each.inter_zone_bytes)),
            f"{each.request_cost:,.2f}",
            f"{each.store_cost:,.2f}",
            f"{each.disk_cost:,.2f}",
            f"{each.inter_zone_cost:,.2f}",
            f"{each.total:,.2f}",
        )
        for each in found
    ]
    output.talk(
        f"{name}: {size(round(load.bytes_per_s))}/s, {load.records_per_s:,.1f} records/s, "
        f"{load.partitions} partition(s) of {load.replicas} replica(s); per month, in US dollars:"
    )
    output.table(
        ("kind", "puts", "gets", "store", "disk", "zones", "requests $", "store $", "disk $", "zones $", "total $"),
        rows,
    )
    for line in assumptions(load, prices):
        output.talk(f"  {line}")
