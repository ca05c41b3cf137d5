"""The pages of one topic: records, partitions, settings, storage, keys, consumers, schema, contract, and a record."""
