"""Directory names of partitions without a value. A text equal to one of these names gets %5F for its first letter."""

from __future__ import annotations

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows without a number, a time or a truth value, as Spark and Hive call it: they read it as null."""

NO_TEXT = "__none__"
"""The directory of rows without a text (or with an empty one): object=__none__."""
