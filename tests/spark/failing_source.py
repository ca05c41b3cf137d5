"""A data source that fails where it is told to, as ours might."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from strandline.spark.error_translation import SparkFailed


def maybe_fail(options: Mapping[str, str], where: str) -> None:
    if options.get("at") == where:
        raise SparkFailed(options["words"])


class Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        maybe_fail(self._options, "partitions")
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        maybe_fail(self._options, "read")
        yield (1,)


class StreamReader(DataSourceStreamReader):
    """Ten rows of topic `t`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, Any]:
        maybe_fail(self._options, "initialOffset")
        return {"t": {"0": 0}}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        maybe_fail(self._options, "latestOffset")
        return {"t": {"0": 10}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        maybe_fail(self._options, "partitions")
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        maybe_fail(self._options, "read")
        for number in range(10):
            yield (number,)


class Writer(DataSourceWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        maybe_fail(self._options, "write")
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        maybe_fail(self._options, "commit")


class StreamWriter(DataSourceStreamWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        maybe_fail(self._options, "write")
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        maybe_fail(self._options, "commit")


class FailingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def schema(self) -> str:
        maybe_fail(self.options, "schema")
        return "number int"

    def reader(self, schema: Any) -> DataSourceReader:
        maybe_fail(self.options, "reader")
        return Reader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        maybe_fail(self.options, "reader")
        return StreamReader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        maybe_fail(self.options, "writer")
        return Writer(self.options)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        maybe_fail(self.options, "writer")
        return StreamWriter(self.options)
