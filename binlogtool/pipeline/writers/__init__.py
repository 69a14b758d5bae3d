"""Writers of output formats that Spark does not have, and the options of table files."""
