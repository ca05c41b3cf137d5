"""The registry over HTTP: what each route does, who may, and how an answer looks."""
