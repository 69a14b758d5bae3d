-- servers: mariadb mysql
-- modes: row full minimal-image noblob-image statement
-- Every column type that both servers have, with the ends of its range, NULL and the empty value.
SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00';
CREATE DATABASE w; USE w;
CREATE TABLE ints (id INT AUTO_INCREMENT PRIMARY KEY, a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED,
    e MEDIUMINT, f MEDIUMINT UNSIGNED, g INT, h INT UNSIGNED, i BIGINT, j BIGINT UNSIGNED, k BOOL, l INT(5) ZEROFILL);
INSERT INTO ints VALUES (1, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,
    -9223372036854775808, 18446744073709551615, true, 7);
INSERT INTO ints VALUES (2, 127, 0, 32767, 0, 8388607, 0, 2147483647, 0, 9223372036854775807, 0, false, 0);
INSERT INTO ints (id) VALUES (3);
UPDATE ints SET a=a-1, b=b-1, c=c-1, j=j-1 WHERE id=2 AND b>0;
UPDATE ints SET a=NULL, j=1 WHERE id=1;
CREATE TABLE numbers (id INT PRIMARY KEY, a FLOAT, b DOUBLE, c DECIMAL(65,30), d DECIMAL(1,0), e DECIMAL(10,5) UNSIGNED,
    f FLOAT(7,3), g DOUBLE(20,4), h BIT(1), i BIT(9), j BIT(64), k YEAR);
INSERT INTO numbers VALUES
    (1, 1.0/3, 1.0/3, 12345678901234567890123456789012345.123456789012345678901234567890, 9, 99999.99999, 1234.567,
     9999999999999999.9999, b'1', b'101010101', 0xFFFFFFFFFFFFFFFF, 1901),
    (2, -3.402823466e38, -1.7976931348623157e308, -0.000000000000000000000000000001, -9, 0.00001, -1234.567, -1, b'0',
     b'0', 0, 2155),
    (3, 1.175494351e-38, 2.2250738585072014e-308, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0),
    (4, 16777216, 0.1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (5, 0.1, 123456789.12345678, 1, 1, 1, 0.1, 0.1, 1, 1, 1, 2000);
UPDATE numbers SET a=a*2, b=b/3 WHERE id IN (4,5);
DELETE FROM numbers WHERE a < -3e38;
CREATE TABLE times (id INT PRIMARY KEY, a DATE, b TIME, c TIME(6), d DATETIME, e DATETIME(6), f TIMESTAMP NULL,
    g TIMESTAMP(6) NULL, h TIME(1), i DATETIME(3));
INSERT INTO times VALUES
    (1, '1000-01-01', '-838:59:59', '-838:59:59.000000', '1000-01-01 00:00:00', '9999-12-31 23:59:59.999999',
     '1970-01-01 00:00:01', '2038-01-19 03:14:07.999999', '-00:00:00.1', '2024-02-29 12:00:00.125'),
    (2, '9999-12-31', '838:59:59', '838:59:58.999999', '9999-12-31 23:59:59', '0001-01-01 00:00:00.000001',
     '2038-01-19 03:14:07', '1970-01-01 00:00:01.000001', '12:34:56.7', '2000-01-01 00:00:00'),
    (3, '2024-02-31', '00:00:00', '-00:00:00.000001', '2024-02-31 00:00:00', '0000-00-00 00:00:00', NULL, NULL, NULL, NULL),
    (4, '0000-00-00', NULL, NULL, '0000-00-00 00:00:00', NULL, '0000-00-00 00:00:00', '0000-00-00 00:00:00', NULL, NULL);
UPDATE times SET c=ADDTIME(c, '00:00:01.5'), f='2001-09-09 01:46:40' WHERE id=2;
CREATE TABLE texts (id INT PRIMARY KEY, a CHAR(10), b VARCHAR(300), c TINYTEXT, d TEXT, e MEDIUMTEXT, f LONGTEXT,
    g BINARY(8), h VARBINARY(300), i TINYBLOB, j BLOB, k MEDIUMBLOB, l LONGBLOB, m ENUM('x','it''s','a,b','ä'),
    n SET('p','q','r','ü'), o ENUM('', 'z'), p CHAR(0), q VARCHAR(0)) DEFAULT CHARSET=utf8mb4;
INSERT INTO texts VALUES
    (1, 'ten chars', REPEAT('ü', 300), 'tiny', REPEAT('text', 5000), REPEAT('m', 70000), '😀', x'0001020304050607',
     x'27225c600a0d001a', x'00', REPEAT(x'ff', 60000), REPEAT(x'5c27', 40000), x'', 'it''s', 'p,q,ü', '', '', ''),
    (2, '', '', '', '', '', '', '', '', '', '', '', '', 'a,b', '', 'z', '', ''),
    (3, ' x ', 'trailing  ', 'a\\b', 'new\nline\r\ttab\0zero\Z', '''quotes"`', '\\''', x'00', x'00', x'20', x'20', x'5c',
     x'27', 'ä', 'r', 'z', NULL, NULL),
    (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT IGNORE INTO texts (id, m, n) VALUES (5, 'no such label', 'p,nosuch');
UPDATE texts SET b=CONCAT(b, '!'), j=NULL, n='q' WHERE id=3;
UPDATE texts SET b='changed' WHERE id=1;
DELETE FROM texts WHERE id=2;
CREATE TABLE shapes (id INT PRIMARY KEY, a GEOMETRY, b POINT, c LINESTRING, d POLYGON, e MULTIPOINT, f MULTILINESTRING,
    g MULTIPOLYGON, h GEOMETRYCOLLECTION);
INSERT INTO shapes VALUES (1, ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('POINT(-1.5 1e100)'),
    ST_GeomFromText('LINESTRING(0 0,1 1,2 2)'), ST_GeomFromText('POLYGON((0 0,0 3,3 3,3 0,0 0))'),
    ST_GeomFromText('MULTIPOINT(1 1,2 2)'), ST_GeomFromText('MULTILINESTRING((0 0,1 1),(2 2,3 3))'),
    ST_GeomFromText('MULTIPOLYGON(((0 0,0 3,3 3,3 0,0 0)))'),
    ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(2 2,3 3))'));
INSERT INTO shapes (id) VALUES (2);
UPDATE shapes SET a=b WHERE id=1;
CREATE TABLE documents (id INT PRIMARY KEY, j JSON);
INSERT INTO documents VALUES (1, '{"a": [1, 2.5, null, true, "t\\u00fc"], "b": {"c": -1e300}}'), (2, 'null'), (3, NULL),
    (4, '[]'), (5, '{}'), (6, '"text"'), (7, '18446744073709551615'), (8, '1.10'), (9, '"\\\\ \\" \\n"');
UPDATE documents SET j='{"changed": 1}' WHERE id=4;
UPDATE documents SET j=JSON_SET(j, '$.a[0]', 7, '$.b.d', 'new') WHERE id=1;
DELETE FROM documents WHERE id=2;
CREATE TABLE bare (a INT, b VARCHAR(20), c FLOAT, d DOUBLE);
INSERT INTO bare VALUES (1, 'one', 0.1, 0.1), (1, 'one', 0.1, 0.1), (2, NULL, NULL, NULL), (3, 'ONE', 1e30, 1e-300);
UPDATE bare SET b='two' WHERE a=2;
DELETE FROM bare WHERE a=1 LIMIT 1;
CREATE TABLE `pair key` (a INT, b VARCHAR(10), c INT, PRIMARY KEY (b(4), a)) DEFAULT CHARSET=latin1;
INSERT INTO `pair key` VALUES (1, 'abcdef', 1), (2, 'abcdef', 2), (1, 'äöü', 3);
UPDATE `pair key` SET c=c+10, a=a+1 WHERE b='äöü';
DELETE FROM `pair key` WHERE a=1;
