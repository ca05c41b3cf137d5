"""Parse what a website writes and send each event where it belongs; what does not parse goes to a topic of its own.

    events (JSON, some of it broken)  ->  events.orders, events.clicks  and  events.dead

A column `topic` says for each row where it is written. Records of `events.dead` are as they came, with topic,
partition and offset in their headers, so that they can be mended and written again.
"""

from pyspark.sql import DataFrame

from strandline import pipeline

events = pipeline.source(
    "events",
    schema="kind STRING, customer STRING, article STRING, action STRING, cents BIGINT, at TIMESTAMP",
    dead_letters="events.dead",
    options={"maxOffsetsPerTrigger": "800"},
)


@pipeline.stream(topic="events.orders")
def routed(events: DataFrame) -> DataFrame:
    orders_or_clicks = "concat('events.', kind, 's') AS topic"
    return events.selectExpr(
        orders_or_clicks, "customer AS key", "to_json(struct(article, action, cents, at)) AS value"
    )
