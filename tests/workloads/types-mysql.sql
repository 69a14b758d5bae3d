-- servers: mysql
-- modes: row full statement partial-json
-- Column types of MySQL.
CREATE DATABASE w; USE w;
CREATE TABLE vectors (id INT PRIMARY KEY, v VECTOR(3), w VECTOR);
INSERT INTO vectors VALUES (1, TO_VECTOR('[1,2,3]'), TO_VECTOR('[1]')), (2, NULL, NULL), (3, TO_VECTOR('[-0.5,1e-30,3e30]'), NULL);
UPDATE vectors SET v=TO_VECTOR('[9,9,9]') WHERE id=2;
CREATE TABLE opaque (id INT PRIMARY KEY, j JSON);
INSERT INTO opaque VALUES (1, JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('12:34:56.789' AS TIME(3)),
    'dt', CAST('2024-02-29 12:34:56.789012' AS DATETIME(6)), 'n', CAST(12.340 AS DECIMAL(10,3)), 'b', x'00ff27')),
    (2, JSON_ARRAY(CAST(18446744073709551615 AS UNSIGNED), -1, 1.5e0)), (3, CAST(CAST(1.10 AS DECIMAL(5,2)) AS JSON));
UPDATE opaque SET j=JSON_SET(j, '$.d', 'x', '$.new', CAST('2025-01-01' AS DATE)) WHERE id=1;
UPDATE opaque SET j=JSON_REMOVE(j, '$.b') WHERE id=1;
UPDATE opaque SET j=JSON_REPLACE(j, '$[1]', 'longer than it was before') WHERE id=2;
CREATE TABLE places (id INT PRIMARY KEY, p POINT SRID 4326 NOT NULL, SPATIAL INDEX (p));
INSERT INTO places VALUES (1, ST_GeomFromText('POINT(48.1 11.5)', 4326)), (2, ST_GeomFromText('POINT(0 0)', 4326));
UPDATE places SET p=ST_GeomFromText('POINT(-45 170)', 4326) WHERE id=2;
CREATE TABLE functional (id INT PRIMARY KEY, a INT, b VARCHAR(20), j JSON, INDEX ((a + 1)), INDEX ((UPPER(b))),
    INDEX zips ((CAST(j->'$.zip' AS UNSIGNED ARRAY))));
INSERT INTO functional VALUES (1, 1, 'one', '{"zip": [1, 2]}'), (2, 2, 'two', '{"zip": []}'), (3, NULL, NULL, NULL);
UPDATE functional SET a=a+10, j='{"zip": [7]}' WHERE id=2;
DELETE FROM functional WHERE id=1;
CREATE TABLE no_key_functional (a INT, b VARCHAR(20), INDEX ((a * 2)));
INSERT INTO no_key_functional VALUES (1, 'x'), (1, 'x'), (2, NULL);
UPDATE no_key_functional SET b='y' WHERE a=2;
DELETE FROM no_key_functional WHERE a=1 LIMIT 1;
CREATE TABLE defaults (id INT PRIMARY KEY, a VARCHAR(40) DEFAULT (CONCAT('x', 'y')), j JSON DEFAULT (JSON_ARRAY()));
INSERT INTO defaults (id) VALUES (1);
CREATE TABLE no_visible_key (a INT, b VARCHAR(10));
INSERT INTO no_visible_key VALUES (1, 'a'), (1, 'a');
SET sql_generate_invisible_primary_key=ON;
CREATE TABLE gipk (a INT, b VARCHAR(10));
INSERT INTO gipk VALUES (1, 'a'), (1, 'a'), (2, 'b');
UPDATE gipk SET b='c' WHERE a=2;
DELETE FROM gipk WHERE my_row_id=1;
SET sql_generate_invisible_primary_key=OFF;
