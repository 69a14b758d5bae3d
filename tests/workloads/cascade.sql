-- servers: mysql
-- modes: statement
-- Triggers of tables that a foreign key changes: they fire where the session says so.
CREATE DATABASE w; USE w;
CREATE TABLE p (id INT PRIMARY KEY); CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE); CREATE TABLE log (n INT);
CREATE TRIGGER t AFTER DELETE ON c FOR EACH ROW INSERT INTO log VALUES (OLD.id);
INSERT INTO p VALUES (1), (2), (3); INSERT INTO c VALUES (10, 1), (20, 2), (30, 3);
SET enable_cascade_triggers=1; DELETE FROM p WHERE id=1; SET enable_cascade_triggers=0; DELETE FROM p WHERE id=2; SET enable_cascade_triggers=DEFAULT; DELETE FROM p WHERE id=3;
