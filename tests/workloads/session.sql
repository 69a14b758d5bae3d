-- servers: mariadb mysql
-- modes: statement
-- Statements whose effect hangs on the session: time, zone, names of days, modes, auto increment, RAND, variables.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(100), b DATETIME(6), c DOUBLE, d TIMESTAMP(6) NULL) DEFAULT CHARSET=utf8mb4;
SET timestamp=1700000000.123456; INSERT INTO t (a, b, d) VALUES ('now', NOW(6), NOW(6)); SET timestamp=DEFAULT;
SET time_zone='+05:30'; INSERT INTO t (a, b, d) VALUES ('zone', FROM_UNIXTIME(1700000000), '2024-01-01 12:00:00');
SET time_zone='SYSTEM'; INSERT INTO t (a, d) VALUES ('system', '2024-01-01 12:00:00'); SET time_zone='-08:00';
SET lc_time_names='de_DE'; INSERT INTO t (a) VALUES (DATE_FORMAT('2024-03-05', '%W %M')); SET lc_time_names='en_US';
INSERT INTO t (a, c) VALUES ('rand', RAND()), ('rand', RAND());
SET @s='text', @i=-5, @u=18446744073709551615, @f=1e0/3, @d=12.3400, @n=NULL, @b=x'00ff27', @e='', @big=REPEAT('x', 300);
INSERT INTO t (a, c) VALUES (@s, @i), (@n, @f), (@d, @u), (HEX(@b), 0), (@e, 1), (LEFT(@big, 90), LENGTH(@big));
SET @`odd ``name`='odd', @`ä`='umlaut'; INSERT INTO t (a) VALUES (@`odd ``name`), (@`ä`);
SET NAMES latin1; SET @l=_latin1 x'e9'; INSERT INTO t (a) VALUES (@l); SET NAMES utf8mb4;
SET @x=_utf8mb4'é' COLLATE utf8mb4_bin; INSERT INTO t (a) VALUES (COLLATION(@x));
SET auto_increment_increment=10, auto_increment_offset=3; INSERT INTO t (a) VALUES ('ten'), ('ten');
SET auto_increment_increment=1, auto_increment_offset=1; SET insert_id=500; INSERT INTO t (a) VALUES ('id');
INSERT INTO t (a) VALUES ('x'); INSERT INTO t (a) VALUES (LAST_INSERT_ID());
SET sql_mode='ANSI_QUOTES'; INSERT INTO "t" ("a") VALUES ('ansi "quotes"');
SET sql_mode='NO_BACKSLASH_ESCAPES'; INSERT INTO t (a) VALUES ('back\'), ('\\'), ('it''s \n');
SET sql_mode='PIPES_AS_CONCAT'; INSERT INTO t (a) VALUES ('a' || 'b');
SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'; INSERT INTO "t" (a) VALUES ('\'); UPDATE t SET a='x"\' WHERE "a"='\';
SET sql_mode=''; INSERT INTO t (a) VALUES ("double \" quotes"), ('nul \0 \Z \r\n');
SET sql_mode='NO_AUTO_VALUE_ON_ZERO'; INSERT INTO t (id, a) VALUES (0, 'zero'); SET sql_mode='';
SET sql_mode='HIGH_NOT_PRECEDENCE'; INSERT INTO t (a) VALUES (NOT 1 BETWEEN -5 AND 5); SET sql_mode='';
SET sql_mode='IGNORE_SPACE'; INSERT INTO t (a) VALUES (CONCAT ('a', 'b')); SET sql_mode='';
CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB;
CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent(id)) ENGINE=InnoDB;
SET foreign_key_checks=0; INSERT INTO child VALUES (1, 99); SET foreign_key_checks=1;
SET unique_checks=0; INSERT INTO parent VALUES (1); SET unique_checks=1;
SET sql_auto_is_null=1; INSERT INTO t (a) VALUES ('auto'); UPDATE t SET a='is null' WHERE id IS NULL; SET sql_auto_is_null=0;
UPDATE t SET a=CONCAT(a, ' ordered') ORDER BY id DESC LIMIT 2;
REPLACE INTO t (id, a) VALUES (1, 'replaced'); INSERT INTO t (id, a) VALUES (1, 'dup') ON DUPLICATE KEY UPDATE a='updated';
INSERT IGNORE INTO t (id, a) VALUES (1, 'ignored');
/* a comment */ INSERT INTO t (a) VALUES ('comment') /* 'quote " ` */; -- and ' one
INSERT INTO t (a) VALUES ('in # text -- /* */ $$ // ;');
INSERT /*!50000 INTO */ t (a) VALUES ('versioned');
TRUNCATE TABLE child;
