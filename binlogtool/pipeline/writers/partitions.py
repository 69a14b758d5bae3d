"""The directories of rows that have nothing in the column that makes them. A text that is one of these names begins
with %5F in place of its first letter."""

from __future__ import annotations

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows without a number, a time or a truth value, as Spark and Hive call it: they read it as null."""

NO_TEXT = "__none__"
"""The directory of rows without a text (or with an empty one): object=__none__."""
