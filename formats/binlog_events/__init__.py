"""Events of MySQL and MariaDB binary logs, independent of the container that stores them."""
