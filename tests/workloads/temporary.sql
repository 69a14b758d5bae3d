-- servers: mariadb mysql
-- modes: statement row
-- Temporary tables of two sessions, as far as they reach the log.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT);
CREATE TEMPORARY TABLE tmp (a INT);
INSERT INTO tmp VALUES (1), (2), (3);
INSERT INTO t (a) SELECT a * 10 FROM tmp;
ALTER TABLE tmp ADD COLUMN b INT DEFAULT 4;
INSERT INTO t (a) SELECT b FROM tmp;
DROP TEMPORARY TABLE tmp;
CREATE TEMPORARY TABLE tmp (a INT);
INSERT INTO tmp VALUES (7);
INSERT INTO t (a) SELECT a FROM tmp;
CREATE TEMPORARY TABLE t2 SELECT * FROM t;
UPDATE t JOIN t2 USING (id) SET t.a=t2.a+1;
-- new session
USE w;
CREATE TEMPORARY TABLE tmp (a INT);
INSERT INTO tmp VALUES (70);
INSERT INTO t (a) SELECT a FROM tmp;
