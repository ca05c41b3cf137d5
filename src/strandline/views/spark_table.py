"""A view as a table inside Spark: the same rows as `view query` gives, current or as of a moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.views.definition import ViewDefinition
from strandline.views.schema import schema_json
from strandline.views.view_session import BOOTSTRAP, DIRECTORY, ViewSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    view: str | ViewDefinition,
    *,
    as_of: Any = None,
    bootstrap: str = BOOTSTRAP,
    directory: str | Path = DIRECTORY,
    client_config: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of a view when this is called, or as of a moment: a frame that does not change any more.

    The state is folded here, in the driver's process, and handed to Spark by Arrow: it has to fit into its memory, and
    executors need to see neither the snapshots nor the log. For a table that is too large for that, read the topic.
    """
    from pyspark.sql.types import StructType

    with ViewSession(bootstrap, directory=directory, client_config=client_config) as desk:
        if isinstance(view, ViewDefinition):
            desk.add(view)
        name = view.name if isinstance(view, ViewDefinition) else view
        definition, rows = desk.rows_of(name, as_of=as_of)
    schema = StructType.fromJson(schema_json(definition.columns))
    # PySpark does not make a frame of a table without rows.
    return spark.createDataFrame(rows, schema=schema) if rows.num_rows else spark.createDataFrame([], schema=schema)
