"""The Kafka client of our own, for what librdkafka cannot do: connections, requests, fetches and Arrow rows.

The command line, views, pipelines and Spark use it. It speaks to any broker that speaks the Kafka protocol.
`bootstrap_probe` finds a bootstrap server that answers, `connection` and `conversation` carry requests,
`cluster_client` knows leaders and offsets, `fetcher` and `arrow_rows` turn ranges of offsets into columns.
"""
