"""The state of the gateway's groups, in two topics of the Kafka cluster behind it."""
