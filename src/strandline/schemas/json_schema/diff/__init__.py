"""Differences between two JSON schemas, named as Confluent's registry names them.

`comparison` holds the state of one comparison and decides which rule applies. `values`, `objects`, `arrays` and
`combinations` have the rules, `kinds` says which differences a reader of old data can bear, and words for each.
"""
