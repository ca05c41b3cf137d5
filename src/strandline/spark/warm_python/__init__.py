"""Spark's Python processes, forked from one that is warm.

For each query Spark starts half a dozen Python processes: to look the data source up, to plan, to read, to write. Each
begins from nothing, and imports PySpark, Arrow and our source for half a second of CPU. Here one process imports all of
that while Java starts (`server`), and Spark is given a small program in the place of Python (`client`) that asks it for
a child. The child has the client's arguments, environment, directory and standard streams, and the client ends as the
child does.

For local masters only: executors elsewhere start what is installed there. Where anything is out of the ordinary, from a
server that is gone to arguments that name no module, the client becomes the Python that Spark would have started.
"""
