"""Orders with what is known of the customer at that time: a stream joined with a table that changes.

    orders, customers (compacted: the newest record of a key is the customer)  ->  customer_orders

The table is read anew for each batch. So an order sees every change that was in the log when its batch began, and a
customer who left (a tombstone) is not found.
"""

from pyspark.sql import DataFrame

from strandline import pipeline

orders = pipeline.source(
    "orders",
    schema="order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP",
    options={"maxOffsetsPerTrigger": "60"},
)
customers = pipeline.source("customers", schema="customer STRING, name STRING, tier STRING", key="customer")


@pipeline.stream
def customer_orders(orders: DataFrame, customers: DataFrame) -> DataFrame:
    found = orders.join(customers, "customer", "left")
    return found.select("order_id", "customer", "name", "tier", "cents")
