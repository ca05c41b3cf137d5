"""Followers pull, pure: what a follower asks of its leader, and what a leader concludes from it.

`in_sync` is the leader's side: how far each follower is, who is in sync, and what the high watermark may be.
`follower` is the other: one fetcher per leader, with an incremental fetch session, that says what to append and where
to truncate. `divergence` is the one rule of truncation, by leader epochs and never by the high watermark.
"""
