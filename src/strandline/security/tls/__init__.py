"""TLS contexts from Kafka's `ssl.*` settings, and the principal of a client certificate.

`stores` reads keys and certificates (PEM, inline or in files, and PKCS12), `contexts` makes and checks `SSLContext`s,
`certificates` reads the fields of a certificate that the broker needs, `distinguished_names` prints a subject as Java
does, and `principal_mapping` turns it into a principal. Nothing here knows a socket.
"""
