"""Change messages in the envelopes of Debezium, Maxwell and Canal."""
