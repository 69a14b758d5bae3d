"""Library of InnoDB: pages and redo log of MariaDB, and the transactions in them."""
