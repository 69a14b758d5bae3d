-- servers: mariadb mysql
-- modes: row full statement
-- Invisible columns.
CREATE DATABASE w; USE w;
CREATE TABLE i (id INT PRIMARY KEY, a INT, hidden INT DEFAULT 5 INVISIBLE, z VARCHAR(5));
INSERT INTO i VALUES (1, 1, 'one');
INSERT INTO i (id, a, hidden, z) VALUES (2, 2, 20, 'two'), (3, 3, NULL, 'three');
UPDATE i SET hidden=hidden+1;
ALTER TABLE i ADD COLUMN more VARCHAR(10) DEFAULT 'm' /*M! INVISIBLE */ /*!80023 INVISIBLE */ AFTER id;
INSERT INTO i (id, a, hidden, z, more) VALUES (4, 4, 40, 'four', 'x');
ALTER TABLE i MODIFY COLUMN hidden INT DEFAULT 5;
INSERT INTO i VALUES (5, 5, 50, 'five');
DELETE FROM i WHERE id=2;
