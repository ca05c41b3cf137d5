"""Strandline measured beside Apache Kafka 4.3.1 on this machine.

`python -m bench` starts both, warms both, runs the same clients on both in turn, and prints ratios against the targets.
A scenario is one module of `bench/scenarios`; the clients are processes of their own, in `bench/clients`.
`brokers` starts and stops the servers, `measure` reads their CPU and memory, `report` prints, plots and saves.
`docs/benchmarks.md` says how to read the figures.
"""
