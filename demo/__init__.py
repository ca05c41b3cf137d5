"""A short story, run by `make demo`: a node, an order feed, two readers, a replay, a `kill -9`, and a Spark pipeline.

`orders` invents the feed (pure, from a seed), `ledger` remembers every acknowledgement and compares,
`shop` is the stock Kafka client (confluent-kafka) that writes and reads, `pipeline` runs on Spark, `stage` prints,
`acts` tells the story.
Nothing here knows more of Strandline than a user does: it is started by `strandline.embedded` and then spoken to
in the Kafka protocol.
"""
