"""Background work on the logs of this node: cleaning, retention, scrubbing, repair and removal."""
