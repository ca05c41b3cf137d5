"""Pipelines: a Python or SQL file of data frames to data frames, run on Spark from log to log, exactly once.

`model` is what a file declares, `registry` what a cluster knows of pipelines. Nothing here is imported by the log
itself: it needs `pip install 'strandline[spark]'`.
"""
