"""A story of two minutes, run by `make demo`: a node, a shop, a pipeline on Spark, a view, and two times `kill -9`.

`feed` invents what the shop writes (pure, from a seed), `ledger` remembers every acknowledgement and compares, `shop`
is the stock Kafka client (confluent-kafka) that writes and reads, `shop_pipeline` is the pipeline as a user writes it,
`driver` starts and kills what runs it, `dashboard` follows its output, `proof` says in plain Python what that must be,
`plot` draws, `stage` prints, `acts` tells the story.
Nothing here knows more of Strandline than a user does: the node is started by `strandline.embedded` and then spoken to
in the Kafka protocol, everything else is a command.
"""
