-- servers: mariadb<11 mysql
-- modes: row full statement
-- Rows without keys, with several, with foreign keys that cascade; equal rows, numbers without exact text, multi-table changes.
CREATE DATABASE w; USE w;
CREATE TABLE plain (a INT, f FLOAT, d DOUBLE, t TEXT, j JSON, n DECIMAL(20,10)); INSERT INTO plain VALUES (1, 0.1, 0.1, 'x', '{"a": [1, 2.5, null]}', 1.5), (1, 0.1, 0.1, 'x', '{"a": [1, 2.5, null]}', 1.5), (NULL, NULL, NULL, NULL, NULL, NULL);
DELETE FROM plain WHERE a=1 LIMIT 1; UPDATE plain SET f=1e30/3, d=-0e0, t='X ' WHERE a=1; UPDATE plain SET t='x' WHERE a=1; UPDATE plain SET j=JSON_SET(j, '$.a[0]', 'é') WHERE a=1; DELETE FROM plain WHERE a IS NULL;
CREATE TABLE parent (id INT PRIMARY KEY, u INT UNIQUE, v INT) ENGINE=InnoDB;
CREATE TABLE child (id INT PRIMARY KEY, p INT, q INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE, FOREIGN KEY (q) REFERENCES parent (u) ON DELETE SET NULL) ENGINE=InnoDB;
INSERT INTO parent VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0); INSERT INTO child VALUES (1, 1, 20), (2, 2, 10), (3, 3, 30);
DELETE FROM parent WHERE id=1; UPDATE parent SET id=20 WHERE id=2; UPDATE parent SET u=u+1 WHERE id=3 AND NOT EXISTS (SELECT 1 FROM child WHERE q=30);
CREATE TABLE tree (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES tree (id)) ENGINE=InnoDB; INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2); SET foreign_key_checks=0; DELETE FROM tree WHERE id=1; UPDATE tree SET up=9 WHERE id=3; SET foreign_key_checks=1;
CREATE TABLE prefix (t VARCHAR(300) CHARACTER SET utf8mb4 NOT NULL, b BLOB, v INT, PRIMARY KEY (t(10))); INSERT INTO prefix VALUES ('éééééééééééééé', x'00ff27', 1), ('b', '', 2); UPDATE prefix SET v=3 WHERE t='b'; DELETE FROM prefix WHERE v=1;
CREATE TABLE two (a VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_swedish_ci, b VARBINARY(9), c TIMESTAMP(3) NULL, PRIMARY KEY (a, b)); INSERT INTO two VALUES ('ä', x'00', '2024-01-01 00:00:00.123'), ('b ', x'0000', NULL); UPDATE two SET b=x'' WHERE a='b'; UPDATE two SET a='B' WHERE a='b';
UPDATE plain, parent SET plain.a=5, parent.v=5 WHERE parent.id=20; DELETE plain, two FROM plain JOIN two WHERE plain.a=5 AND two.c IS NULL;
CREATE TABLE seq (id INT PRIMARY KEY, u INT UNIQUE); INSERT INTO seq VALUES (1, 1), (2, 2), (3, 3); UPDATE seq SET u=u+1 ORDER BY u DESC; UPDATE seq SET id=id-1 ORDER BY id; REPLACE INTO seq VALUES (0, 4); INSERT INTO seq VALUES (0, 9) ON DUPLICATE KEY UPDATE u=u+50;
CREATE TABLE auto (id INT AUTO_INCREMENT PRIMARY KEY, x INT) ; INSERT INTO auto (x) VALUES (1), (2); SET sql_mode='NO_AUTO_VALUE_ON_ZERO'; INSERT INTO auto VALUES (0, 3); UPDATE auto SET id=-5 WHERE x=2; SET sql_mode=DEFAULT; INSERT INTO auto (x) VALUES (4); DELETE FROM auto WHERE id=0;
