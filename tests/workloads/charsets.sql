-- servers: mariadb mysql
-- modes: row full statement
-- Text in every character set that both servers have, as values, labels and in clients.
CREATE DATABASE w; USE w;
CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, armscii8 VARCHAR(20) CHARACTER SET armscii8, ascii VARCHAR(20) CHARACTER SET ascii,
    big5 VARCHAR(20) CHARACTER SET big5, cp1250 VARCHAR(20) CHARACTER SET cp1250, cp1251 VARCHAR(20) CHARACTER SET cp1251,
    cp1256 VARCHAR(20) CHARACTER SET cp1256, cp1257 VARCHAR(20) CHARACTER SET cp1257, cp850 VARCHAR(20) CHARACTER SET cp850,
    cp852 VARCHAR(20) CHARACTER SET cp852, cp866 VARCHAR(20) CHARACTER SET cp866, cp932 VARCHAR(20) CHARACTER SET cp932,
    dec8 VARCHAR(20) CHARACTER SET dec8, eucjpms VARCHAR(20) CHARACTER SET eucjpms, euckr VARCHAR(20) CHARACTER SET euckr,
    gb2312 VARCHAR(20) CHARACTER SET gb2312, gbk VARCHAR(20) CHARACTER SET gbk, geostd8 VARCHAR(20) CHARACTER SET geostd8,
    greek VARCHAR(20) CHARACTER SET greek, hebrew VARCHAR(20) CHARACTER SET hebrew, hp8 VARCHAR(20) CHARACTER SET hp8,
    keybcs2 VARCHAR(20) CHARACTER SET keybcs2, koi8r VARCHAR(20) CHARACTER SET koi8r, koi8u VARCHAR(20) CHARACTER SET koi8u,
    latin1 VARCHAR(20) CHARACTER SET latin1, latin2 VARCHAR(20) CHARACTER SET latin2, latin5 VARCHAR(20) CHARACTER SET latin5,
    latin7 VARCHAR(20) CHARACTER SET latin7, macce VARCHAR(20) CHARACTER SET macce, macroman VARCHAR(20) CHARACTER SET macroman,
    sjis VARCHAR(20) CHARACTER SET sjis, swe7 VARCHAR(20) CHARACTER SET swe7, tis620 VARCHAR(20) CHARACTER SET tis620,
    ucs2 VARCHAR(20) CHARACTER SET ucs2, ujis VARCHAR(20) CHARACTER SET ujis, utf16 VARCHAR(20) CHARACTER SET utf16,
    utf16le VARCHAR(20) CHARACTER SET utf16le, utf32 VARCHAR(20) CHARACTER SET utf32, utf8mb3 VARCHAR(20) CHARACTER SET utf8mb3,
    utf8mb4 VARCHAR(20) CHARACTER SET utf8mb4);
SET NAMES utf8mb4;
INSERT INTO c (armscii8, ascii, big5, cp1250, cp1251, cp1256, cp1257, cp850, cp852, cp866, cp932) VALUES
    ('Ա', 'ascii\\''', '功許蓋', 'Š', 'Ж', 'ع', 'ž', 'é', 'č', 'Ж', '表ソ能');
INSERT INTO c (dec8, eucjpms, euckr, gb2312, gbk, geostd8, greek, hebrew, hp8, keybcs2, koi8r, koi8u) VALUES
    ('é', '表ソ', '한국', '中文', '一丂乗', 'ა', 'Ω', 'א', 'é', 'č', 'Ж', 'Є');
INSERT INTO c (latin1, latin2, latin5, latin7, macce, macroman, sjis, swe7, tis620, ucs2, ujis, utf16, utf16le, utf32, utf8mb3, utf8mb4)
    VALUES ('é€', 'Š', 'ğ', 'ž', 'č', 'é', '表ソ能', 'a', 'ก', '表\\''', '表ソ', '表😀\\''', '表😀\\''', '表😀\\''', '表', '😀\\''');
UPDATE c SET sjis=CONCAT(sjis, '表'), gbk='丂\\''', ucs2=CONCAT(ucs2, 'x'), latin1=NULL;
CREATE TABLE labels (id INT PRIMARY KEY, s ENUM('表','ソ','x') CHARACTER SET sjis, g SET('丂','乗','y') CHARACTER SET gbk,
    b ENUM('功','許') CHARACTER SET big5, u ENUM('ä','😀') CHARACTER SET utf8mb4, w ENUM('表','x') CHARACTER SET utf16,
    l ENUM('é','a''b') CHARACTER SET latin1);
INSERT INTO labels VALUES (1, '表', '丂,y', '功', '😀', '表', 'é'), (2, 'ソ', '乗', '許', 'ä', 'x', 'a''b'), (3, NULL, '', NULL, NULL, NULL, NULL);
UPDATE labels SET s='x', g='丂,乗,y' WHERE id=2;
CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(50) CHARACTER SET utf8mb4, b VARBINARY(50));
SET NAMES latin1; INSERT INTO t VALUES (1, _latin1 x'e9', x'e9'); INSERT INTO t VALUES (2, 'Ã©', 'x');
SET NAMES utf8mb4; INSERT INTO t VALUES (3, '中\\', '\\');
SET NAMES koi8r; INSERT INTO t VALUES (4, _koi8r x'c1', x'c1');
SET NAMES utf8mb4;
CREATE TABLE collated (a VARCHAR(10) COLLATE utf8mb4_bin, b VARCHAR(10) COLLATE utf8mb4_general_ci, c VARCHAR(10) COLLATE utf8mb4_unicode_ci,
    PRIMARY KEY (b)) DEFAULT CHARSET=utf8mb4;
INSERT INTO collated VALUES ('a', 'a', 'a'), ('A', 'b', 'A ');
UPDATE collated SET a='ä' WHERE b='A'; DELETE FROM collated WHERE c='a' AND b='B';
SET collation_connection=utf8mb4_bin; CREATE TABLE from_connection AS SELECT 'x' AS x; SET NAMES utf8mb4;
SET character_set_database=latin2; SET character_set_server=latin7;
CREATE DATABASE other; CREATE TABLE other.t (a VARCHAR(10)); INSERT INTO other.t VALUES ('ž');
