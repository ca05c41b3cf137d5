"""Which clicks led to an order? Two streams joined within a bound of time.

    orders, clicks  ->  attributed    an order with each click on its article in the half hour before it

The bound and the watermarks tell Spark how long it has to remember either side, so its state does not grow for ever.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline import pipeline

orders = pipeline.source(
    "orders",
    schema="order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP",
    watermark=("at", "30 minutes"),
    options={"maxOffsetsPerTrigger": "60"},
)
clicks = pipeline.source(
    "clicks",
    schema="click STRING, customer STRING, article STRING, action STRING, at TIMESTAMP",
    watermark=("at", "30 minutes"),
    options={"maxOffsetsPerTrigger": "550"},
)


@pipeline.stream
def attributed(orders: DataFrame, clicks: DataFrame) -> DataFrame:
    clicks = clicks.select(
        "click", "action", clicks.customer.alias("who"), clicks.article.alias("what"), clicks.at.alias("clicked")
    )
    pairs = orders.join(
        clicks,
        F.expr("customer = who AND article = what AND clicked BETWEEN at - INTERVAL 30 MINUTES AND at"),
    )
    return pairs.select("order_id", "click", "action", "cents", "clicked", "at")
