"""Our own Kafka client, for what librdkafka cannot do: connections, requests, fetches and Arrow rows.

The command line, views, pipelines and Spark use it. It speaks to any broker that speaks the Kafka protocol.
`bootstrap_probe` finds a bootstrap server that answers, `security` reads the settings of TLS and logins, `connection`
carries requests, `cluster_client` knows leaders and offsets and tries again until a deadline, `coordinators` finds
those of groups and transactions, `group_positions` reads what a group has committed, `topic_creation` creates topics.
`fetcher` and `arrow_rows` turn ranges of offsets into columns, `partitioner` chooses the partitions of rows.
"""
