"""The data path of the gateway: a listener for each broker, and for each client a connection to that broker."""
