-- servers: mysql
-- modes: statement row
-- Clients in gb18030: bytes of their characters look like backslashes and quotes. The lines are bytes
-- of these character sets; the client is told of each.
CREATE DATABASE w; USE w;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(100) CHARACTER SET utf8mb4, b VARBINARY(100));
CREATE TABLE victim (id INT PRIMARY KEY); INSERT INTO victim VALUES (1);
\C gb18030
SET NAMES gb18030;
INSERT INTO t (s, b) VALUES ('丂乗😀', '丂乗😀');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('a''b\\丂乗😀');
SET @u = '丂乗😀'; INSERT INTO t (s) VALUES (@u);
\C utf8mb4
SET NAMES utf8mb4;
INSERT INTO t (s, b) VALUES ('涓璡\', 'b');
INSERT INTO t (s) VALUES (' $$ drop table w.victim $$ ');
INSERT INTO t (s) VALUES ('; drop table w.victim; -- ');
