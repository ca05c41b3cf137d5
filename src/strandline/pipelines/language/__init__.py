"""The language of pipelines: what a Python or SQL file declares, checked without Spark."""
