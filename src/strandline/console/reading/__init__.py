"""What the console reads of a cluster, as its visitor: cached for moments, each question asked once at a time.

`kept_value` keeps one answer and asks again in time, `shared_reader` has the connections and answers of one user of one
cluster, `cluster_reading` is what a page model gets, and `cluster_metadata` what every page begins with.
"""
