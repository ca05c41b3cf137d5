"""KRaft's pull protocol as a pure core: elections, epochs, fetches and voters. `raft.py` is the way in."""
