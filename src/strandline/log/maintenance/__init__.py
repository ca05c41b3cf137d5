"""Work on a log after it is written: retention, scrubbing, and the replacement and rebuilding of segments."""
