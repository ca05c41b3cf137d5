"""The demo's pipeline: a window, a join and a table. `strandline pipeline run demo/shop_pipeline.py` runs it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline import pipeline

orders = pipeline.source(
    "orders",
    schema="order_id STRING, customer STRING, country STRING, article STRING, cents BIGINT, at TIMESTAMP",
    watermark=("at", "2 hours"),
    options={"maxOffsetsPerTrigger": "2000"},
)
clicks = pipeline.source(
    "clicks",
    schema="click STRING, customer STRING, article STRING, action STRING, at TIMESTAMP",
    watermark=("at", "2 hours"),
    options={"maxOffsetsPerTrigger": "20000"},
)


@pipeline.stream
def sales(orders: DataFrame) -> DataFrame:
    """What each country bought in each quarter of an hour, once no order can come for it any more."""
    windows = orders.groupBy(F.window("at", "15 minutes"), "country")
    sold = windows.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return sold.select(F.col("window.start").alias("began"), "country", "orders", "cents")


@pipeline.stream
def attributed(orders: DataFrame, clicks: DataFrame) -> DataFrame:
    """Each order with the clicks on its article in the half hour before it."""
    clicks = clicks.selectExpr("click", "customer AS who", "article AS what", "at AS clicked")
    pairs = orders.join(
        clicks, F.expr("customer = who AND article = what AND clicked BETWEEN at - INTERVAL 30 MINUTES AND at")
    )
    return pairs.select("order_id", "click")


@pipeline.view(key="article")
def article_sales(orders: DataFrame) -> DataFrame:
    """What is sold of each article so far."""
    return orders.groupBy("article").agg(F.count("*").alias("sold"), F.sum("cents").alias("cents"))
