"""Who may come in and what they may do: TLS, SASL, the users file, and access control lists."""
