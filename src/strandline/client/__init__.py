"""Our own Kafka client, for what librdkafka cannot do: connections, requests, fetches and Arrow rows.

The command line, views, pipelines and Spark use it. It works with any broker that speaks the Kafka protocol.
`bootstrap_probe` finds a bootstrap server that answers, and `connection` carries requests. `cluster_client` finds
leaders and offsets, with retries until a deadline. `coordinators` finds those of groups and transactions,
`group_positions` reads what a group has committed. `fetcher` and `arrow_rows` turn ranges of offsets into columns, and
`partitioner` chooses the partitions of rows.
"""
