"""Who a client is, and what it may do.

Principals and sessions, TLS contexts, the mechanisms of SASL, access rules and quotas. What decides here is pure: it is
given credentials, rules and the time. Only `tls` reads files. `broker/network` and `handlers` enforce the decisions;
`client` authenticates with them.
"""
