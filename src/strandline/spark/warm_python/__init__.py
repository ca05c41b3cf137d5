"""Python workers of Spark, forked from one warm process.

For each query Spark starts half a dozen Python processes: to look the data source up, to plan, to read, to write. Each
imports PySpark, Arrow and our source for half a second of CPU. Here one process imports all of that while Java starts
(`server`). Spark gets a small program instead of Python (`client`) that requests a child from it. The child has the
client's arguments, environment, directory and standard streams, and the client exits as the child does.

This is for local masters only: executors elsewhere start their own Python. In any unusual case, such as a server that
is gone or arguments without a module, the client becomes the Python that Spark would have started.
"""
