"""Orders that were sent twice, once.

    orders  ->  unique_orders

A phone that hears no answer sends its order again. Within the watermark each order passes once, whichever copy came
first; Spark has to remember the orders of that time and no more.
"""

from pyspark.sql import DataFrame

from strandline import pipeline

orders = pipeline.source(
    "orders",
    schema="order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP",
    watermark=("at", "30 minutes"),
    options={"maxOffsetsPerTrigger": "60"},
)


@pipeline.stream
def unique_orders(orders: DataFrame) -> DataFrame:
    return orders.dropDuplicatesWithinWatermark(["order_id"])
