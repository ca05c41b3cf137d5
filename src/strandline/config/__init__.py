"""The settings of a node, of topics, of groups and of client metrics: names, types, defaults and limits.

Tables declare the settings (`broker_settings`, `cluster_settings` and so on) in terms of `settings`. `node_config`
reads and combines their values, `cluster_checks` checks them together, `entries` answers DescribeConfigs, and `docs`
prints `docs/configuration.md`.
"""
