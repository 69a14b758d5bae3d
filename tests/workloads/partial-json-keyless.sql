-- servers: mysql
-- modes: partial-json partial-json-full
-- Changes inside of JSON in a table without a key: an undo does not know which row it was.
CREATE DATABASE w; USE w;
CREATE TABLE no_key (a INT, j JSON);
INSERT INTO no_key VALUES (1, JSON_OBJECT('pad', REPEAT('x', 60), 'n', 1)), (1, JSON_OBJECT('pad', REPEAT('x', 60), 'n', 2)), (2, NULL);
UPDATE no_key SET j=JSON_SET(j, '$.n', 3) WHERE j->'$.n'=2;
UPDATE no_key SET a=5 WHERE j IS NULL;
