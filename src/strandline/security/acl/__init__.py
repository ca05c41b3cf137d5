"""Access rules: Kafka's ACLs, and the authorizer that decides by them.

An ACL allows or denies a principal an operation on the resources that a pattern covers. `kinds` has Kafka's numbers,
`access_rule` an ACL, its checks and filters, `resource_index` finds the ACLs of a resource, and `authorizer` decides.
All of it is pure: the records of the metadata log come in, decisions go out.
"""
