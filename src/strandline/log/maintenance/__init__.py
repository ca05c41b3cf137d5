"""What happens to a log after it is written: retention, replacement and rebuilding of segments, scrubbing."""
