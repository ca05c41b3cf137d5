"""The process of a connector with `engine=spark`: in turns, a job of Spark writes files, and this process commits them.

    python -m strandline.spark.lake.connector_process    the work as JSON on standard input, what was done on the output

The table alone knows where to go on: it holds the offset behind what it has of each partition, as with `engine=local`,
and each commit expects the offsets that its turn began with. So there is no checkpoint to lose, either engine goes on
where the other one stopped, and this process may be killed at any moment. The group of the connector shows how far it
is, without members.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any, Final

from strandline.client.cluster_client import ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.fetcher import OffsetRange
from strandline.client.group_positions import read_positions
from strandline.connect.failures import ConnectFailed, FencedOut, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.lake.data_files import commit_once
from strandline.connect.sinks.lake.lake_table import DataFile, FileMarks, LakeTable
from strandline.connect.tasks.sink_task import group_of
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition
from strandline.spark.error_translation import SparkFailed, explain_failure, is_of_spark
from strandline.spark.lake.connector_tasks import ConnectorJob, RangeWritten, write_range
from strandline.spark.lake.options import CLASSES
from strandline.spark.positions import GroupPositions, Refused
from strandline.spark.source.options import parse_options
from strandline.spark.source.planning import Planner
from strandline.spark.source.splitting import Positions, limited, split

LOOK_S: Final = 0.5
"""How often the ends of the topics are looked at while nothing is due."""
_RETRIABLE: Final = re.compile(r"strandline\.(?:connect\.failures\.RetriableFailure|client\.failures\.\w+): ")


class ConnectorRun:
    """The turns of one connector."""

    def __init__(self, work: Mapping[str, Any], out: IO[str]) -> None:
        self._out = out
        self._properties: dict[str, str] = work["properties"]
        self._name: str = work["connector"]
        topics, regex = self._properties.get("topics"), self._properties.get("topics.regex")
        wanted = {"subscribe": topics} if topics else {"subscribePattern": f"^(?:{regex})$"}
        options = parse_options({**work["kafka"], **wanted}, streaming=False)
        (kind,) = (kind for kind, place in CLASSES.items() if place == work["class"])
        allowed = work["allowed_paths"]
        self.job = ConnectorJob(
            kind,
            tuple(sorted(self._properties.items())),
            tuple(work["allowed_modules"]),
            None if allowed is None else tuple(allowed),
            options.client,
        )
        self.sink = self.job.sink()
        self._planner = Planner(options)
        group = group_of(self._name, self._properties)
        self._group = GroupPositions(options.client.bootstrap, group, options.client.security)
        self._positions: Positions = {}
        self._expected: dict[TopicPosition, int | None] = {}
        self._spark: Any = None

    def run(self) -> None:
        """Take turns until this process ends."""
        self._start_spark()
        while True:
            began_s = time.monotonic()
            self._turn()
            while (time.monotonic() - began_s) * 1000 < self.sink.config.commit_interval_ms and not self._is_full():
                time.sleep(LOOK_S)
            time.sleep(0 if self._is_behind() else LOOK_S)

    def tell(self, event: str, **more: Any) -> None:
        print(json.dumps({"event": event, **more}), file=self._out, flush=True)

    def _start_spark(self) -> None:
        from strandline.spark.sessions import session

        config = self.sink.config
        given: dict[str, Any] = {
            "spark.driver.memory": config.spark_driver_memory,
            "spark.executor.memory": config.spark_executor_memory,
            "spark.cores.max": config.spark_cores_max,
        }
        self._spark = session(
            f"connector {self._name}",
            master=config.spark_master,
            **{name: value for name, value in given.items() if value is not None},
        ).sparkContext

    def _turn(self) -> None:
        """Write what is there, up to a limit, and commit it."""
        ids = self._planner.partitions(must_exist=False)
        begin, latest = self._begin(ids), self._planner.latest(ids)
        for each, offset in latest.items():
            if offset < begin[each]:
                raise ConnectFailed(
                    f"{each} ends at {offset}, before the offset {begin[each]} that the table or the group has: the "
                    "topic was made again, so stop the connector and set its offsets"
                )
        end = limited(begin, latest, self.sink.config.spark_batch_records_max)
        tables: dict[str, list[OffsetRange]] = {}
        for each in sorted(ids):
            if end[each] > begin[each]:
                found = OffsetRange(*each, begin[each], end[each], ids[each])
                tables.setdefault(self.sink.name_of(each.topic), []).append(found)
        for name, some in tables.items():
            self._write(name, some)
        self._show(latest)

    def _write(self, name: str, ranges: Sequence[OffsetRange]) -> None:
        parts = split(ranges, partitions_min=self._spark.defaultParallelism, records_per_partition_max=None)
        directory = directory_of_turn(self._name, self.sink.table_named(name), ranges)
        written = self._spark.parallelize(parts, len(parts)).map(partial(write_range, self.job, directory)).collect()
        check_all_written(parts, written)
        files = [file for each in written for file in each.files]
        ends = {TopicPosition(each.topic, each.partition): each.end for each in ranges}
        if files:
            expected = {each: self._expected[each] for each in ends}
            commit_offsets(self.sink.table_named(name), files, directory, ends, expected)
            self._expected |= ends
        self._positions |= {TopicPartition(*each): end for each, end in ends.items()}
        self.tell(
            "committed",
            records=sum(each.records for each in written),
            bytes=sum(each.value_bytes for each in written),
        )

    def _begin(self, ids: Mapping[TopicPartition, object]) -> Positions:
        """Return where each partition goes on: by the table, else by the group, else with its first record."""
        fresh = {each: None for each in ids if each not in self._positions}
        if fresh:
            earliest = self._planner.earliest(fresh)
            committed = self._committed()
            for each in fresh:
                place = TopicPosition(*each)
                stored = self.sink.table_named(self.sink.name_of(each.topic)).offset(place)
                self._expected[place] = stored
                wanted = stored if stored is not None else committed.get(each, earliest[each])
                if wanted < earliest[each]:
                    self.tell("note", text=f"records {wanted} to {earliest[each]} of {each} were removed before")
                self._positions[each] = max(wanted, earliest[each])
        return {each: self._positions[each] for each in ids}

    def _committed(self) -> dict[TopicPartition, int]:
        code, found = read_positions(self._planner.client, "read positions", self._group.group_id, require_stable=False)
        if code != ErrorCode.NONE:
            raise RetriableFailure(f"the offsets of the group {self._group.group_id} cannot be read: {code.name}")
        return {TopicPartition(*each): position.offset for each, position in found.items()}

    def _show(self, latest: Positions) -> None:
        """Commit positions to the group, and tell how far they are behind."""
        self._group.reach({(each.topic, each.partition): offset for each, offset in self._positions.items()})
        client = ClusterClient(self.job.client)
        try:
            self._group.commit(client)
        except Refused as refusal:
            self.tell("note", text=str(refusal))
        finally:
            client.close()
        behind = [[*each, max(0, end - self._positions[each])] for each, end in latest.items()]
        self.tell("position", behind=behind)

    def _behind(self) -> int:
        """Return how many offsets there are to be read; what is told of them is as new."""
        latest = self._planner.latest(self._planner.partitions(must_exist=False))
        behind = {each: max(0, end - self._positions.get(each, 0)) for each, end in latest.items()}
        self.tell("position", behind=[[*each, count] for each, count in behind.items()])
        return sum(behind.values())

    def _is_behind(self) -> bool:
        return self._behind() > 0

    def _is_full(self) -> bool:
        return self._behind() >= self.sink.config.spark_batch_records_max


def directory_of_turn(connector: str, table: LakeTable, ranges: Sequence[OffsetRange]) -> str:
    """Return where the files of a turn lie. An attempt on the same version that begins at the same offsets shares it.

    The version tells a turn from one that was committed before the offsets were set back.
    """
    begin = [table.name, table.version(), *([each.topic, each.partition, each.start] for each in ranges)]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (connector, json.dumps(begin))]
    return "/".join(["strandline", *digests])


def check_all_written(parts: Sequence[OffsetRange], written: Sequence[RangeWritten]) -> None:
    """Raise unless every range was written: offsets behind a range that is missing would lose it."""
    if [each.offsets for each in written] != list(parts):
        raise ConnectFailed(f"Spark brings word of {len(written)} of {len(parts)} tasks: nothing was committed")


def commit_offsets(
    table: LakeTable,
    files: Sequence[DataFile],
    directory: str,
    ends: Mapping[TopicPosition, int],
    expected: Mapping[TopicPosition, int | None],
) -> None:
    """Add files and set offsets. Raise FencedOut if the table has others than expected: another process writes it."""

    def is_done() -> bool:
        for each in ends:
            found = table.offset(each)
            if found != expected[each]:
                raise FencedOut(
                    f"another task writes {each.topic}-{each.partition} to {table.name}: the table holds offset "
                    f"{found} where this task had {expected[each]}"
                )
        return False

    commit_once(table, files, directory, FileMarks(ends), is_done)


def failure_of(error: Exception) -> tuple[str, str]:
    """Return how a failure counts, and its sentence."""
    if isinstance(error, FencedOut):
        return "fenced", str(error)
    if isinstance(error, RetriableFailure):
        return "retriable", str(error)
    if isinstance(error, ConnectFailed):
        return "failed", str(error)
    if is_of_spark(error):
        return ("retriable" if _RETRIABLE.search(str(error)) else "failed"), explain_failure(error)
    if isinstance(error, SparkFailed):
        return "failed", str(error)
    if isinstance(error, ClientFailed):
        return "retriable", str(error)
    return "failed", f"{type(error).__name__}: {error}"


def main() -> None:
    # What libraries print must not be taken for what this process tells.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    work = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        ConnectorRun(work, out).run()
    except Exception as error:  # whatever it is, the worker tells it
        kind, text = failure_of(error)
        print(json.dumps({"event": "failed", "kind": kind, "text": text}), file=out, flush=True)
        os._exit(1)


def _end_with_input() -> None:
    """End at once when the worker has ended or wants it: what is not committed is written again."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
