"""The authentication of connections by SASL: who may log in where, and the login of this node at others."""
