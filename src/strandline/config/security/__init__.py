"""The settings that keep strangers out: TLS, SASL, the authorizer and the audit topic."""
