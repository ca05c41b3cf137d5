"""`strandline pipeline` and `strandline spark`: run, list, rebuild and stop pipelines; prepare Spark."""
