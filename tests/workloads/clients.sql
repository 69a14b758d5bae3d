-- servers: mariadb mysql
-- modes: statement row
-- Clients in gbk, sjis, cp932 and big5: bytes of their characters look like backslashes and quotes. The lines are bytes
-- of these character sets; the client is told of each.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(100) CHARACTER SET utf8mb4, b VARBINARY(100));
CREATE TABLE victim (id INT PRIMARY KEY); INSERT INTO victim VALUES (1);
\C gbk
SET NAMES gbk;
INSERT INTO t (s, b) VALUES ('　―ﾒｻ', '　―ﾒｻ');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('a''b\\　―ﾒｻ');
SET @u = '　―ﾒｻ'; INSERT INTO t (s) VALUES (@u);
\C utf8mb4
SET NAMES utf8mb4;
INSERT INTO t (s, b) VALUES ('荳ｭ\\', 'b');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('; drop table w.victim; -- ');
\C sjis
SET NAMES sjis;
INSERT INTO t (s, b) VALUES ('表ソ能', '表ソ能');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('a''b\\表ソ能');
SET @u = '表ソ能'; INSERT INTO t (s) VALUES (@u);
\C utf8mb4
SET NAMES utf8mb4;
INSERT INTO t (s, b) VALUES ('荳ｭ\\', 'b');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('; drop table w.victim; -- ');
\C cp932
SET NAMES cp932;
INSERT INTO t (s, b) VALUES ('表ソ能', '表ソ能');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('a''b\\表ソ能');
SET @u = '表ソ能'; INSERT INTO t (s) VALUES (@u);
\C utf8mb4
SET NAMES utf8mb4;
INSERT INTO t (s, b) VALUES ('荳ｭ\\', 'b');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('; drop table w.victim; -- ');
\C big5
SET NAMES big5;
INSERT INTO t (s, b) VALUES ('･\ｳ\ｻ\', '･\ｳ\ｻ\');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('a''b\\･\ｳ\ｻ\');
SET @u = '･\ｳ\ｻ\'; INSERT INTO t (s) VALUES (@u);
\C utf8mb4
SET NAMES utf8mb4;
INSERT INTO t (s, b) VALUES ('荳ｭ\\', 'b');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('; drop table w.victim; -- ');
