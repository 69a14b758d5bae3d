-- servers: mariadb mysql
-- modes: row statement
-- Stored procedures, functions, events and views, with their modes and character sets; users and grants.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(60)) DEFAULT CHARSET=utf8mb4;
DELIMITER //
CREATE PROCEDURE p (IN x VARCHAR(20), IN n INT) BEGIN
  DECLARE i INT DEFAULT 0;
  -- a comment with 'quotes
  WHILE i < n DO INSERT INTO t (a) VALUES (CONCAT(x, i)); SET i = i + 1; END WHILE;
END//
CREATE FUNCTION f (x INT) RETURNS INT DETERMINISTIC RETURN x * 2//
CREATE FUNCTION writes (x INT) RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO t (a) VALUES ('function'); RETURN x; END//
SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'//
CREATE PROCEDURE "ansi ""p" () BEGIN INSERT INTO "t" ("a") VALUES ('\'); END//
SET sql_mode=''//
DELIMITER ;
CALL p('call', 3);
SELECT writes(1);
INSERT INTO t (a) VALUES (f(21));
CALL `ansi "p`();
CREATE EVENT e ON SCHEDULE EVERY 1 YEAR STARTS '2037-01-01 00:00:00' DO INSERT INTO w.t (a) VALUES ('event; $$ //');
ALTER EVENT e COMMENT 'it''s';
CREATE VIEW v AS SELECT id, CONCAT(a, '\'', "é") AS b FROM t WHERE id > 1;
CREATE OR REPLACE ALGORITHM=MERGE SQL SECURITY INVOKER VIEW `v 2` AS SELECT * FROM v;
SET NAMES latin1; CREATE VIEW latin AS SELECT _latin1 x'e9' AS x; SET NAMES utf8mb4;
ALTER VIEW v AS SELECT id FROM t;
ALTER PROCEDURE p COMMENT 'changed';
DROP FUNCTION f;
CREATE USER reader@localhost IDENTIFIED BY 'secret'; GRANT SELECT ON w.* TO reader@localhost; DROP USER reader@localhost;
