"""Pipelines: a Python or SQL file of data frames to data frames, run on Spark from log to log, exactly once.

`language/` is what a file declares, `changes/` what a changed file means, `run/` runs one version, `rebuild/` builds
and switches versions, and `versions/` stores what a cluster knows of them. A broker never imports this package: it
needs `pip install 'strandline[spark]'`.
"""
