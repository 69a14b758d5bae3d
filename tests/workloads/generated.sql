-- servers: mariadb mysql
-- modes: row full statement
-- Generated columns; ALTER adds, drops and moves some between changes of rows.
CREATE DATABASE w; USE w;
CREATE TABLE g (id INT PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a * 2) VIRTUAL, s INT AS (a + 1) STORED, z VARCHAR(9));
INSERT INTO g (id, a, z) VALUES (1, 1, 'one'), (2, NULL, NULL);
UPDATE g SET a=5 WHERE id=2;
ALTER TABLE g ADD COLUMN w INT AS (a - 1) VIRTUAL AFTER id;
INSERT INTO g (id, a) VALUES (3, 3);
UPDATE g SET a=a+1;
ALTER TABLE g DROP COLUMN s, ADD COLUMN plain INT DEFAULT 7 FIRST;
INSERT INTO g (id, a, plain) VALUES (4, 4, 1);
ALTER TABLE g ADD COLUMN s2 VARCHAR(20) AS (CONCAT(z, '!')) STORED, MODIFY COLUMN a BIGINT;
UPDATE g SET a=a+100, z='zz' WHERE id IN (1,4);
ALTER TABLE g CHANGE COLUMN z zeta VARCHAR(30), DROP COLUMN s2;
INSERT INTO g (id, a, zeta) VALUES (5, 5, 'five');
DELETE FROM g WHERE id=3;
ALTER TABLE g RENAME TO g2;
INSERT INTO g2 (id, a) VALUES (6, 6);
RENAME TABLE g2 TO g3;
UPDATE g3 SET a=0 WHERE id=6;
CREATE TABLE copy LIKE g3;
INSERT INTO copy (id, a) VALUES (1, 1);
DELETE FROM copy;
INSERT INTO copy (id, a) VALUES (2, 2);
CREATE TABLE nokey (a INT, b INT AS (a * 3) STORED, c VARCHAR(10));
INSERT INTO nokey (a, c) VALUES (1, 'x'), (1, 'x'), (2, NULL);
UPDATE nokey SET c='y' WHERE a=2;
DELETE FROM nokey WHERE a=1 LIMIT 1;
