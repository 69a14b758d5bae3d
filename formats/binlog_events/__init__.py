"""Events of MySQL and MariaDB binary logs, independent of the log format that contains them."""
