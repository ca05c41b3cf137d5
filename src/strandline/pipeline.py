"""The language of pipelines: a file of decorated functions, from data frames to data frames.

    from strandline import pipeline

    orders = pipeline.source("orders", schema="order_id STRING, customer STRING, amount DOUBLE")

    @pipeline.stream
    def large_orders(orders):
        return orders.where("amount > 100")

`strandline pipeline run shop.py` runs it; docs/pipelines.md tells the rest. Needs `pip install 'strandline[spark]'` to
run, and nothing of it to be imported.
"""

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.declaring import name, source, spark, stream, table, temporary_view, view
from strandline.pipelines.language.loading import load

materialized_view = view
"""As in `pyspark.pipelines`."""

__all__ = [
    "PipelineRefused",
    "load",
    "materialized_view",
    "name",
    "source",
    "spark",
    "stream",
    "table",
    "temporary_view",
    "view",
]
