-- servers: mariadb
-- modes: row statement
-- GTIDs of MariaDB: domains, servers, numbers with gaps, and groups of every kind.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20)) ENGINE=InnoDB; CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM;
INSERT INTO t (v) VALUES ('0 own');
SET gtid_domain_id=1; INSERT INTO t (v) VALUES ('1 domain');
SET gtid_domain_id=4294967295; INSERT INTO t (v) VALUES ('2 last domain');
SET gtid_domain_id=2, server_id=77; INSERT INTO t (v) VALUES ('3 server');
SET server_id=4294967295; INSERT INTO t (v) VALUES ('4 last server'); SET server_id=1;
SET gtid_domain_id=3, gtid_seq_no=100; INSERT INTO t (v) VALUES ('5 gap'); INSERT INTO t (v) VALUES ('6 behind it');
SET gtid_seq_no=9223372036854775800; INSERT INTO t (v) VALUES ('7 high number');
SET gtid_domain_id=4; CREATE TABLE d (a INT); DROP TABLE d;
SET gtid_domain_id=5; INSERT INTO m VALUES (1);
SET gtid_domain_id=6; START TRANSACTION; INSERT INTO t (v) VALUES ('8 both'); INSERT INTO m VALUES (2); COMMIT;
SET gtid_domain_id=7; XA START 'x'; INSERT INTO t (v) VALUES ('9 xa'); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';
SET gtid_domain_id=8; XA START 'y'; INSERT INTO t (v) VALUES ('10 xa'); XA END 'y'; XA PREPARE 'y'; XA ROLLBACK 'y';
SET gtid_domain_id=9; CREATE TABLE c AS SELECT * FROM t;
SET gtid_domain_id=10; TRUNCATE TABLE c;
SET gtid_domain_id=11, skip_parallel_replication=1; INSERT INTO t (v) VALUES ('11 not parallel'); SET skip_parallel_replication=0;
SET gtid_domain_id=12; CREATE PROCEDURE p () INSERT INTO t (v) VALUES ('12 procedure'); CALL p();
SET gtid_domain_id=13; ALTER TABLE t ADD COLUMN w INT;
SET gtid_domain_id=14; START TRANSACTION; INSERT INTO t (v) VALUES ('13'); SAVEPOINT s; INSERT INTO t (v) VALUES ('14'); ROLLBACK TO s; COMMIT;
SET gtid_domain_id=15; FLUSH TABLES; ANALYZE TABLE t;
SET gtid_domain_id=0; INSERT INTO t (v) VALUES ('15 back');
