"""The clients, each a program of its own: `python -m bench.clients.produce '{"bootstrap": ...}'`.

`produce`, `consume`, `one_record` and `every_partition` are librdkafka through confluent-kafka, as users run it.
`one_record_raw`, `paced`, `keyed` and `connections` speak through bare sockets, where a library would hide the broker's
part. Both brokers get the same program with the same task.
"""
