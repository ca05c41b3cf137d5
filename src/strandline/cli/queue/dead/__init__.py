"""`strandline queue dead`: dead letters of share groups, pipelines and connectors; back to their topics, or away.

`letters` reads their headers, `marks` remembers in the topic itself which were handled, both pure. `reading` finds them
in a topic, `handling` writes and marks in one transaction.
"""
