"""Counts over time: fixed windows, sliding windows, and sessions that end when nothing came for a while.

    orders  ->  sales_by_quarter_hour   tumbling: each order is in one window
    orders  ->  sales_last_half_hour    sliding: half an hour, anew every quarter; each order is in two
    clicks  ->  visits                  sessions: a visit is over when a customer did nothing for 20 minutes

Orders may come half an hour late: the watermark follows 30 minutes behind the latest time that was seen. A window is
written once, when the watermark has passed its end. What comes even later is left out and counted: `pipeline status`.
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
def sales_by_quarter_hour(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(F.window("at", "15 minutes"), "country")
    sales = windows.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return sales.select(F.col("window.start").alias("began"), "country", "orders", "cents")


@pipeline.stream
def sales_last_half_hour(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(F.window("at", "30 minutes", "15 minutes"))
    sales = windows.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return sales.select(F.col("window.start").alias("began"), F.col("window.end").alias("ended"), "orders", "cents")


@pipeline.stream
def visits(clicks: DataFrame) -> DataFrame:
    sessions = clicks.groupBy("customer", F.session_window("at", "20 minutes").alias("session"))
    visits = sessions.agg(F.count("*").alias("clicks"), F.max("at").alias("ended"))
    return visits.select("customer", F.col("session.start").alias("began"), "ended", "clicks")
