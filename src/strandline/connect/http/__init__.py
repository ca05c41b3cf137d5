"""The REST API of Kafka Connect: what each route does, the right that it needs, and how an answer looks."""
