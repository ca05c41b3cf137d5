"""Consumer lag, pure: how far a group is behind, how that changes, and when it loses records.

`samples` keeps the observations of one position over a window of time. `figures` computes lag, rates and the time until
retention deletes unread records. `verdict` summarizes a position in a word and a sentence. The broker's sampler and
`strandline group lag` supply the observations.
"""
