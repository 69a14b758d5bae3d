"""The events of MySQL and MariaDB: what they mean, whichever container they lie in."""
