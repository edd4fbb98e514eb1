"""Authentication and authorization of clients: SASL, the users file and access control lists."""
