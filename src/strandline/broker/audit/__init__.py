"""The audit topic: `audit_log` takes the events of this node to it, `audit_topic` appends for all nodes as leader."""
