"""Running totals: aggregates that are written back to compacted topics, where the newest record of a key counts.

orders  ->  customer_totals   a table: what each customer has spent
orders  ->  article_sales     a view: a table that can be queried

strandline view query "SELECT article, sold FROM article_sales ORDER BY sold DESC"
strandline view get article_sales "storm lamp"
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline import pipeline

orders = pipeline.source(
    "orders",
    schema="order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP",
    options={"maxOffsetsPerTrigger": "60"},
)


@pipeline.table(key="customer")
def customer_totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))


@pipeline.view(key=["article", "country"])
def article_sales(orders: DataFrame) -> DataFrame:
    return orders.groupBy("article", "country").agg(F.count("*").alias("sold"), F.max("at").alias("last_sold"))
