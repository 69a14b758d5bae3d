-- servers: mariadb<11 mysql
-- modes: row statement
-- Triggers, events, views and routines in odd modes and names; temporary tables; comments and delimiters in texts.
CREATE DATABASE `w ;--` DEFAULT CHARACTER SET sjis; CREATE DATABASE w; USE w;
SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT';
CREATE TABLE "t /*!*/;" (id INT AUTO_INCREMENT PRIMARY KEY, "c '""` \" VARCHAR(100) DEFAULT '\' COMMENT 'c;\'); CREATE TABLE log (m VARCHAR(200));
DELIMITER //
CREATE TRIGGER "tr ""/*!*/;" BEFORE INSERT ON "t /*!*/;" FOR EACH ROW BEGIN INSERT INTO log VALUES ('/*!*/; ' || NEW."c '""` \" || ' \'); SET NEW."c '""` \" = NEW."c '""` \" || '!'; END//
CREATE EVENT "ev ;" ON SCHEDULE EVERY 1 DAY STARTS '2037-01-01' COMMENT '/*!*/;' DO BEGIN INSERT INTO log VALUES ('x\'); END//
CREATE FUNCTION "f `" (a VARCHAR(10)) RETURNS VARCHAR(30) DETERMINISTIC BEGIN /* it's */ RETURN a || '\' || "f2"(a); -- don't
END//
CREATE FUNCTION "f2" (a VARCHAR(10)) RETURNS VARCHAR(30) DETERMINISTIC RETURN '/*!*/;
'//
DELIMITER ;
INSERT INTO "t /*!*/;" ("c '""` \") VALUES ('a\'), ('
/*!*/;
DELIMITER x
'), (DEFAULT); INSERT INTO log VALUES ("f `"('q'));
SET sql_mode='';
UPDATE `t /*!*/;` SET `c '"`` \`="double \"/*!*/;\" \\" WHERE id=1; CREATE VIEW `v /*!*/;` AS SELECT '/*!*/;\n' AS `/*!*/;`, id FROM `t /*!*/;`;
CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY, s VARCHAR(20)); INSERT INTO tmp VALUES (1, 'x'); CREATE TABLE kept AS SELECT * FROM tmp; INSERT INTO kept SELECT id + 5, s FROM tmp; ALTER TABLE tmp ADD z INT DEFAULT 3; INSERT INTO log SELECT z FROM tmp;
USE `w ;--`; SET NAMES utf8mb4; CREATE TABLE `ソ` (`ソ` VARCHAR(10), e ENUM('ソ','表')); INSERT INTO `ソ` VALUES ('表ソ', 'ソ'), ('\\', '表'); UPDATE `ソ` SET e='表' WHERE e='ソ'; CREATE VIEW `ビ` AS SELECT 'ソ' AS `表`, `ソ` FROM `ソ`;
INSERT INTO w.log VALUES ('\\C gbk'), ('\\! touch /tmp/x'), ('source x
\\. x
delimiter $$
'), (CONCAT('a', 0x00, 'b', CHAR(26))); DROP VIEW `ビ`; DROP TRIGGER w.`tr "/*!*/;`; INSERT INTO w.`t /*!*/;` () VALUES ();
