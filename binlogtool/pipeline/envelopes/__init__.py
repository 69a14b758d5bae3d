"""Change messages in the shapes of Debezium, Maxwell and Canal."""
