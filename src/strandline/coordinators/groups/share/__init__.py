"""Share groups (KIP-932): their members, the assignment, and which partitions have state to deliver from."""
