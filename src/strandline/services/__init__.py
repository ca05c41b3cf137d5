"""Services beside the nodes: processes of their own, which are clients of the cluster and speak HTTP.

`http` guards every door of HTTP: TLS, the cluster's users, rights, and limits. A node imports nothing of this package;
its dependencies come with `strandline[services]`.
"""
