"""The log of an application: changes of keys in tables, each record with its length and a CRC-32."""
