-- servers: mariadb>=11.8
-- modes: row full
-- VECTOR and the long TIMESTAMP of MariaDB 11.
CREATE DATABASE w; USE w;
CREATE TABLE vectors (id INT PRIMARY KEY, v VECTOR(3) NOT NULL, VECTOR INDEX (v));
INSERT INTO vectors VALUES (1, Vec_FromText('[1,2,3]')), (2, Vec_FromText('[-0.5,0.001,3e10]')), (3, Vec_FromText('[0,0,0]'));
UPDATE vectors SET v=Vec_FromText('[9,9,9]') WHERE id=3;
DELETE FROM vectors WHERE id=2;
CREATE TABLE late (id INT PRIMARY KEY, t TIMESTAMP(6) NULL, d DATETIME(6));
SET time_zone='+00:00';
INSERT INTO late VALUES (1, '2106-02-07 06:28:15.999999', '2106-02-07 06:28:15'), (2, '2040-01-01 00:00:00', NULL);
UPDATE late SET t='2099-12-31 23:59:59.5' WHERE id=2;
