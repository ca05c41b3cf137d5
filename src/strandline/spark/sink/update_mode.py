"""Output modes that Spark refuses to sinks in Python, by foreachBatch: each batch is a frame, written as that batch.

Spark lets a sink in Python append and nothing else. An aggregate without a watermark, and whatever changes a row that
it wrote before, has the mode update (or complete). In foreachBatch Spark allows all modes, and a batch that it runs
again has the number that it had. So the frame is written by the sink under the query's id and the batch's number, and
is committed by the same one request, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import BATCH_OPTION, QUERY_OPTION
from strandline.spark.sink.task_writer import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_updates(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """`writer` with the sink behind it in whatever mode it has; give the checkpoint in `options`, too."""
    return writer.options(**options).foreachBatch(_write(dict(options)))


def _write(options: dict[str, str]) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch_id: int) -> None:
        query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query_id:
            raise SinkRefused("Spark does not say which query this is: the sink works with PySpark 4.3.")
        writer = frame.write.format("strandline").options(**options)
        writer.option(QUERY_OPTION, query_id).option(BATCH_OPTION, batch_id).mode("append").save()

    return write
