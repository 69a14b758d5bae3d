-- servers: mariadb>=11.8
-- modes: row statement
-- target: character_set_collations='utf8mb4=utf8mb4_general_ci'
-- Tables whose collation is the session's or the server's choice, not the character set's.
CREATE DATABASE w; USE w;
CREATE TABLE usual (a VARCHAR(10) CHARACTER SET utf8mb4, b VARCHAR(10)) CHARACTER SET utf8mb4; INSERT INTO usual VALUES ('ä', 'ß');
SET character_set_collations='utf8mb4=uca1400_german2_ai_ci,latin1=latin1_bin';
CREATE TABLE german (a VARCHAR(10) CHARACTER SET utf8mb4, b VARCHAR(10) CHARACTER SET latin1) CHARACTER SET utf8mb4; CREATE DATABASE g CHARACTER SET utf8mb4;
CREATE TABLE g.t (a VARCHAR(10) PRIMARY KEY); INSERT INTO g.t VALUES ('a'), ('ß'); INSERT INTO german SELECT 'x', _latin1 x'e4';
CREATE TABLE g.made AS SELECT CONVERT('ä' USING utf8mb4) AS c, COLLATION(CONVERT('ä' USING utf8mb4)) AS n;
SET character_set_collations='utf8mb4=utf8mb4_general_ci';
CREATE TABLE general (a VARCHAR(10) CHARACTER SET utf8mb4) CHARACTER SET utf8mb4; ALTER TABLE german CONVERT TO CHARACTER SET utf8mb4; ALTER TABLE usual ADD c VARCHAR(10) CHARACTER SET utf8mb4;
SET character_set_collations=''; CREATE TABLE compiled (a VARCHAR(10) CHARACTER SET utf8mb4) CHARACTER SET utf8mb4; INSERT INTO compiled VALUES ('ä'); CREATE DATABASE c CHARACTER SET utf8mb3; CREATE TABLE c.t (a VARCHAR(10));
SET character_set_collations=DEFAULT; CREATE TABLE again (a VARCHAR(10) CHARACTER SET utf8mb4) CHARACTER SET utf8mb4;
SET collation_server=utf8mb4_nopad_bin; CREATE DATABASE b; CREATE TABLE b.t (a VARCHAR(10)); INSERT INTO b.t VALUES ('A'), ('a'); ALTER DATABASE b COLLATE uca1400_swedish_as_cs; CREATE TABLE b.u (a VARCHAR(10)); CREATE TABLE b.v LIKE b.t;
SET NAMES utf8mb4 COLLATE uca1400_spanish_ai_ci; CREATE TABLE w.spanish AS SELECT 'x' AS x; SET NAMES utf8mb4; DELETE FROM b.t WHERE a='a';
