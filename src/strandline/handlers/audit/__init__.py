"""What the audit topic says of requests that change something.

`change_table` has a row for each such API: which resources a request names, and what became of each by its response.
"""
