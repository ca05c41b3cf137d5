"""Sources that come with Strandline."""
