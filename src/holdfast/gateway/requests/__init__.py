"""The requests that the gateway answers itself, instead of forwarding them to Kafka."""
