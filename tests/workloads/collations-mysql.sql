-- servers: mysql
-- modes: row statement
-- target: default_collation_for_utf8mb4=utf8mb4_general_ci
-- Tables whose collation is the session's or the server's choice, not the character set's.
CREATE DATABASE w; USE w;
SET default_collation_for_utf8mb4=utf8mb4_general_ci;
CREATE TABLE general (a VARCHAR(10) CHARACTER SET utf8mb4, b VARCHAR(10)) CHARACTER SET utf8mb4; CREATE DATABASE g CHARACTER SET utf8mb4;
CREATE TABLE g.t (a VARCHAR(10) PRIMARY KEY); INSERT INTO g.t VALUES ('a'), ('ß'); INSERT INTO general SELECT 'x', CONVERT(_latin1 x'e4' USING utf8mb4);
CREATE TABLE g.made AS SELECT CONVERT('ä' USING utf8mb4) AS c, COLLATION(CONVERT('ä' USING utf8mb4)) AS n;
SET default_collation_for_utf8mb4=utf8mb4_0900_ai_ci;
CREATE TABLE ai (a VARCHAR(10) CHARACTER SET utf8mb4) CHARACTER SET utf8mb4; INSERT INTO ai VALUES ('ä');
ALTER TABLE general CONVERT TO CHARACTER SET utf8mb4; ALTER TABLE general ADD c VARCHAR(10) CHARACTER SET utf8mb4;
SET collation_server=utf8mb4_bin; CREATE DATABASE b; CREATE TABLE b.t (a VARCHAR(10)); INSERT INTO b.t VALUES ('A'), ('a'); SET collation_server=utf8mb4_ja_0900_as_cs; CREATE DATABASE j; CREATE TABLE j.t (a VARCHAR(10));
SET NAMES utf8mb4 COLLATE utf8mb4_zh_0900_as_cs; CREATE TABLE w.zh AS SELECT 'x' AS x; SET NAMES utf8mb4;
ALTER DATABASE j COLLATE utf8mb4_0900_bin; CREATE TABLE j.u (a VARCHAR(10)); CREATE TABLE j.v LIKE j.t; DELETE FROM b.t WHERE a='a';
