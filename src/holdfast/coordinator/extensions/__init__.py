"""What Holdfast adds to Kafka's group protocol. `hooks` attaches it."""
