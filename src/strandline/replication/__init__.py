"""Replication by pull, pure: what a follower fetches from its leader, and what a leader concludes from it.

`in_sync` is the leader's side: the position of each follower, the in-sync set, and the high watermark. `follower` is
the other side: one fetcher per leader, with an incremental fetch session, that says what to append and where to
truncate. `divergence` is the one rule of truncation: by leader epochs, never by the high watermark.
"""
