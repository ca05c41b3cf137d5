"""Nodes as child processes on this machine: embedded brokers and clusters, and the supervision of several nodes.

`strandline.embedded`, the pytest fixtures, `strandline dev` and local pipelines start their nodes here. A node does not
outlive the process that started it.
"""
