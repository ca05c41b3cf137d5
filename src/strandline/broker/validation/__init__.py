"""Validation of records by their schemas, for topics that ask for it. A node without such a topic never imports this.

`schema_topic` reads the topic `_schemas` from its leader and knows how far it has read. `topic_validation` judges the
schema ids of one topic and tells why a record is rejected. `schema_validation` is the part of the node that has both.
The walk over records is `codec/columns/_validate`, in compiled code.
"""
