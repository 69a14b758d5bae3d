-- servers: mariadb mysql
-- modes: row statement
-- XA transactions: committed, in one phase, rolled back.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB;
XA START 'one'; INSERT INTO t VALUES (1, 1); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
XA START 'g','b',7; INSERT INTO t VALUES (2, 2); UPDATE t SET v=20 WHERE id=2; XA END 'g','b',7; XA PREPARE 'g','b',7; XA COMMIT 'g','b',7;
XA START 'phase'; INSERT INTO t VALUES (3, 3); XA END 'phase'; XA COMMIT 'phase' ONE PHASE;
XA START 'back'; INSERT INTO t VALUES (4, 4); XA END 'back'; XA PREPARE 'back'; XA ROLLBACK 'back';
XA START x'27005c','it''s'; INSERT INTO t VALUES (5, 5); XA END x'27005c','it''s'; XA PREPARE x'27005c','it''s'; XA COMMIT x'27005c','it''s';
INSERT INTO t VALUES (6, 6);
