"""MessagePack as Tarantool stores it."""
