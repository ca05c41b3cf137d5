"""Orders with their tax: a stream joined with a small table that every executor gets a copy of.

orders, rates (compacted)  ->  taxed_orders
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline import pipeline

orders = pipeline.source(
    "orders",
    schema="order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP",
    options={"maxOffsetsPerTrigger": "60"},
)
rates = pipeline.source("rates", schema="country STRING, percent INT", key="country")


@pipeline.stream
def taxed_orders(orders: DataFrame, rates: DataFrame) -> DataFrame:
    # The join needs no shuffle: rates travel to the orders, not orders to the rates.
    taxed = orders.join(F.broadcast(rates), "country")
    return taxed.selectExpr("order_id", "country", "cents", "cents * percent DIV (100 + percent) AS tax_cents")
