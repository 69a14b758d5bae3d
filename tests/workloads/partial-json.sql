-- servers: mysql
-- modes: partial-json partial-json-full statement
-- Updates of JSON of which the log has only what changed: replaced, inserted, removed, in objects and arrays, at any depth.
CREATE DATABASE w; USE w;
CREATE TABLE docs (id INT PRIMARY KEY, a JSON, n INT, b JSON, t TIMESTAMP(3) NULL);
INSERT INTO docs VALUES
    (1, '{"name": "a name that is long enough to be worth a difference", "n": 1, "list": [1, 2, 3], "deep": {"x": {"y": "z"}}}', 1, '[]', NULL),
    (2, '{"k": "0123456789012345678901234567890123456789", "e": null, "t": true, "f": 1.5e0, "big": 18446744073709551615}', 2,
        '["first first first first first", "second second second second", "third third third third"]', '2026-01-02 03:04:05.678'),
    (3, '{"quote\'d \\"key\\"": "it\'s \\\\ back", "päth": "grüße 😀", "a.b": 1, "": 2, "pad": "0123456789012345678901234567890123456789"}', 3, NULL, NULL),
    (4, '["0123456789012345678901234567890123456789", [[["deep deep deep deep deep deep"]]], {"x": [{"y": 1}]}]', 4, '"alone"', NULL);
UPDATE docs SET a=JSON_REPLACE(a, '$.name', 'short'), n=n+1 WHERE id=1;
UPDATE docs SET a=JSON_SET(a, '$.n', 2, '$.list[1]', 'two', '$.deep.x.y', NULL) WHERE id=1;
UPDATE docs SET a=JSON_REMOVE(a, '$.name') WHERE id=1;
UPDATE docs SET a=JSON_SET(a, '$.name', JSON_ARRAY(1, 2.5e0, 'x', NULL, TRUE, FALSE, JSON_OBJECT('k', 'v'))) WHERE id=1;
UPDATE docs SET a=JSON_SET(a, '$.f', -1e-300, '$.t', FALSE, '$.e', 'now', '$.big', -9223372036854775808) WHERE id=2;
UPDATE docs SET a=JSON_SET(a, '$.f', 3e0, '$.t', 1, '$.e', CAST('null' AS JSON)) WHERE id=2;
UPDATE docs SET b=JSON_REMOVE(b, '$[0]'), a=JSON_REMOVE(a, '$.k') WHERE id=2;
UPDATE docs SET b=JSON_REPLACE(b, '$[last]', 'x') WHERE id=2;
UPDATE docs SET a=JSON_SET(a, '$."quote\'d \\"key\\""', 'it\'s "new" \\ and \n', '$."päth"', '表\0\Z', '$."a.b"', 'dot', '$.""', 'empty') WHERE id=3;
UPDATE docs SET b=JSON_ARRAY('NULL before') WHERE id=3;
UPDATE docs SET a=JSON_REPLACE(a, '$[1][0][0][0]', 'd', '$[2].x[0].y', JSON_OBJECT()) WHERE id=4;
UPDATE docs SET a=JSON_REMOVE(a, '$[1][0]', '$[2].x') WHERE id=4;
UPDATE docs SET b=JSON_REPLACE(b, '$', 'another') WHERE id=4;
UPDATE docs SET n=n+10;
UPDATE docs SET a=JSON_SET(a, '$.n', n), b=NULL WHERE id IN (1, 2);
UPDATE docs SET a=JSON_SET(a, '$.every', n, '$.more', 'more') ORDER BY id;
UPDATE docs SET t='2026-05-06 07:08:09.5', b=JSON_SET(COALESCE(b, '{}'), '$.x', 1);
CREATE TABLE typed (id INT PRIMARY KEY, j JSON);
INSERT INTO typed VALUES (1, JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 'n', CAST(12.340 AS DECIMAL(10,3)), 'b', x'00ff27', 'pad', REPEAT('x', 60)));
UPDATE typed SET j=JSON_SET(j, '$.pad', 'y') WHERE id=1;
UPDATE typed SET j=JSON_REPLACE(j, '$.n', CAST(1.10 AS DECIMAL(5,2)), '$.d', CAST('2025-01-01' AS DATE)) WHERE id=1;
UPDATE typed SET j=JSON_REMOVE(j, '$.b') WHERE id=1;
CREATE TABLE keyed (id INT PRIMARY KEY, j JSON, zip INT AS (j->>'$.zip') STORED, up VARCHAR(20) AS (UPPER(j->>'$.s')) VIRTUAL, INDEX (zip), INDEX (up));
INSERT INTO keyed (id, j) VALUES (1, JSON_OBJECT('zip', 123, 's', 'a', 'pad', REPEAT('x', 60))), (2, JSON_OBJECT('zip', 7, 's', 'b', 'pad', REPEAT('y', 60)));
UPDATE keyed SET j=JSON_SET(j, '$.zip', 456, '$.s', 'c') WHERE id=1;
UPDATE keyed SET j=JSON_SET(j, '$.s', 'd');
UPDATE keyed SET id=3, j=JSON_REMOVE(j, '$.pad') WHERE id=2;
DELETE FROM keyed WHERE id=1;
CREATE TABLE many (k VARCHAR(20) CHARACTER SET latin1, s INT, j JSON, PRIMARY KEY (s, k));
INSERT INTO many SELECT CONCAT('ä', n), n, JSON_OBJECT('n', n, 'pad', REPEAT('p', 50)) FROM
    (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 200) SELECT n FROM c) x;
UPDATE many SET j=JSON_SET(j, '$.n', s * 2) WHERE s % 2;
UPDATE many SET j=JSON_REMOVE(j, '$.pad') WHERE s % 3 = 0;
BEGIN;
UPDATE many SET j=JSON_SET(j, '$.n', 'in') WHERE s < 5;
SAVEPOINT one;
UPDATE many SET j=JSON_SET(j, '$.n', 'gone') WHERE s < 5;
ROLLBACK TO one;
UPDATE docs SET a=JSON_SET(a, '$.every', 'both');
COMMIT;
