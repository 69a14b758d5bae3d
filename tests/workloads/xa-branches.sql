-- servers: mariadb<11 mysql
-- modes: row statement
-- XA: several branches, empty ones, prepared in one session and ended in another one, savepoints, other changes between.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=InnoDB; CREATE TABLE o (id INT PRIMARY KEY) ENGINE=InnoDB;
XA START 'g','b1'; INSERT INTO t VALUES (1, 'b1'); XA END 'g','b1'; XA PREPARE 'g','b1';
-- new session
USE w; XA START 'g','b2'; INSERT INTO t VALUES (2, 'b2'); XA END 'g','b2'; XA PREPARE 'g','b2';
-- new session
USE w; INSERT INTO o VALUES (1); XA COMMIT 'g','b2'; INSERT INTO o VALUES (2);
-- new session
USE w; XA ROLLBACK 'g','b1'; INSERT INTO t VALUES (1, 'again');
XA START 'sp'; INSERT INTO t VALUES (3, 'a'); SAVEPOINT s; INSERT INTO t VALUES (4, 'b'); ROLLBACK TO s; INSERT INTO t VALUES (5, 'c'); XA END 'sp'; XA PREPARE 'sp'; XA COMMIT 'sp';
XA START 'empty'; XA END 'empty'; XA PREPARE 'empty'; XA COMMIT 'empty';
XA START 'idle','',99; SELECT * FROM t; XA END 'idle','',99; XA COMMIT 'idle','',99 ONE PHASE;
XA START x'00ff', x'0a', 2147483647; UPDATE t SET v='hex' WHERE id=5; XA END x'00ff', x'0a', 2147483647; XA PREPARE x'00ff', x'0a', 2147483647; XA COMMIT x'00ff', x'0a', 2147483647;
XA START 'left'; INSERT INTO t VALUES (70, 'left'); XA END 'left'; XA PREPARE 'left';
-- new session
USE w; XA COMMIT 'left'; BEGIN; INSERT INTO o VALUES (3); SAVEPOINT `a``b`; INSERT INTO o VALUES (4); ROLLBACK TO `a``b`; INSERT INTO o VALUES (5); RELEASE SAVEPOINT `a``b`; COMMIT AND CHAIN; INSERT INTO o VALUES (6); COMMIT;
