"""Advice on workloads, pure: is it log-shaped, what does it need, and what do running topics show.

`description` reads what a person wrote about a workload. `gates` asks the five questions that route away from a log;
`forces` has what speaks for one and against it. `sizing` computes figures with their formulas, `safe_operation` checks
six rules. `judgement` puts these together. `anti_patterns` finds logs that are used as something else, from signs
that a running cluster shows. The command line measures; no module here asks a cluster.
"""
