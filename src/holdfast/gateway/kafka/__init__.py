"""The asyncio client with which the gateway talks to the Kafka cluster behind it."""
