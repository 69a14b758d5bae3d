-- servers: mysql
-- modes: row full statement
-- A primary key that is generated.
CREATE DATABASE w; USE w;
CREATE TABLE keyed (a INT, k INT AS (a * 3) STORED, c VARCHAR(10), PRIMARY KEY (k));
INSERT INTO keyed (a, c) VALUES (1, 'x'), (2, 'y');
UPDATE keyed SET c='z' WHERE k=3;
DELETE FROM keyed WHERE k=6;
