-- servers: mariadb
-- modes: row mixed
-- DDL of MariaDB: OR REPLACE, IF EXISTS, CHECK, periods, RENAME in a chain, sequences, packages in Oracle's mode.
CREATE DATABASE w; USE w;
CREATE TABLE a (id INT PRIMARY KEY, v INT CHECK (v > 0)); SET check_constraint_checks=0; INSERT INTO a VALUES (1, -1); SET check_constraint_checks=1;
CREATE OR REPLACE TABLE a (id INT PRIMARY KEY, v INT, w INT); INSERT INTO a VALUES (2, 2, 2);
ALTER TABLE a ADD COLUMN IF NOT EXISTS w INT, ADD COLUMN IF NOT EXISTS x INT; ALTER TABLE IF EXISTS nothing ADD COLUMN z INT;
CREATE TABLE b LIKE a; RENAME TABLE a TO c, b TO a, c TO b; INSERT INTO a (id) VALUES (7);
SET explicit_defaults_for_timestamp=0; CREATE TABLE d (t TIMESTAMP, u TIMESTAMP NULL); SET explicit_defaults_for_timestamp=1;
SET sql_mode='ORACLE';
CREATE TABLE "e" (a VARCHAR2(10), b NUMBER(10), c CLOB); INSERT INTO e VALUES ('x' || 'y', 1.5, 'clob');
SET sql_mode='';
CREATE SEQUENCE s; ALTER SEQUENCE s RESTART 50; SELECT NEXTVAL(s); DROP SEQUENCE s;
INSERT INTO a (id) VALUES (8) RETURNING id; DELETE FROM a WHERE id=8 RETURNING id;
ALTER TABLE a ALTER COLUMN v SET DEFAULT 5, RENAME COLUMN w TO `w w`; INSERT INTO a (id) VALUES (9);
DROP TABLE IF EXISTS b, nothing;
