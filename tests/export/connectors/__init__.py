"""Real connectors that read a real server: Debezium, Maxwell and Canal, from Maven Central."""
