"""The node as a member of its cluster: the Raft driver, metadata loading, snapshots, registration and heartbeats."""
