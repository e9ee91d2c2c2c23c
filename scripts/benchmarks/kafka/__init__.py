"""The peer: Spark's Kafka source and sink, and a single Kafka broker on loopback."""
