-- servers: mariadb mysql
-- modes: row full statement
-- Names with odd characters, of databases, tables and columns.
SET NAMES utf8mb4;
CREATE DATABASE w; USE w; CREATE TABLE victim (id INT PRIMARY KEY); INSERT INTO victim VALUES (1);
CREATE TABLE `a b` (id INT PRIMARY KEY, `a b` VARCHAR(20));
INSERT INTO `a b` VALUES (1, 'x'), (2, 'y'); UPDATE `a b` SET `a b`='z' WHERE id=2; DELETE FROM `a b` WHERE `a b`='x';
CREATE TABLE `a``b` (id INT PRIMARY KEY, `a``b` VARCHAR(20));
INSERT INTO `a``b` VALUES (1, 'x'), (2, 'y'); UPDATE `a``b` SET `a``b`='z' WHERE id=2; DELETE FROM `a``b` WHERE `a``b`='x';
CREATE TABLE `a'b` (id INT PRIMARY KEY, `a'b` VARCHAR(20));
INSERT INTO `a'b` VALUES (1, 'x'), (2, 'y'); UPDATE `a'b` SET `a'b`='z' WHERE id=2; DELETE FROM `a'b` WHERE `a'b`='x';
CREATE TABLE `a"b` (id INT PRIMARY KEY, `a"b` VARCHAR(20));
INSERT INTO `a"b` VALUES (1, 'x'), (2, 'y'); UPDATE `a"b` SET `a"b`='z' WHERE id=2; DELETE FROM `a"b` WHERE `a"b`='x';
CREATE TABLE `a\b` (id INT PRIMARY KEY, `a\b` VARCHAR(20));
INSERT INTO `a\b` VALUES (1, 'x'), (2, 'y'); UPDATE `a\b` SET `a\b`='z' WHERE id=2; DELETE FROM `a\b` WHERE `a\b`='x';
CREATE TABLE `a
b` (id INT PRIMARY KEY, `a
b` VARCHAR(20));
INSERT INTO `a
b` VALUES (1, 'x'), (2, 'y'); UPDATE `a
b` SET `a
b`='z' WHERE id=2; DELETE FROM `a
b` WHERE `a
b`='x';
CREATE TABLE `a-- b` (id INT PRIMARY KEY, `a-- b` VARCHAR(20));
INSERT INTO `a-- b` VALUES (1, 'x'), (2, 'y'); UPDATE `a-- b` SET `a-- b`='z' WHERE id=2; DELETE FROM `a-- b` WHERE `a-- b`='x';
CREATE TABLE `a#b` (id INT PRIMARY KEY, `a#b` VARCHAR(20));
INSERT INTO `a#b` VALUES (1, 'x'), (2, 'y'); UPDATE `a#b` SET `a#b`='z' WHERE id=2; DELETE FROM `a#b` WHERE `a#b`='x';
CREATE TABLE `a*/b` (id INT PRIMARY KEY, `a*/b` VARCHAR(20));
INSERT INTO `a*/b` VALUES (1, 'x'), (2, 'y'); UPDATE `a*/b` SET `a*/b`='z' WHERE id=2; DELETE FROM `a*/b` WHERE `a*/b`='x';
CREATE TABLE `a$$b;//` (id INT PRIMARY KEY, `a$$b;//` VARCHAR(20));
INSERT INTO `a$$b;//` VALUES (1, 'x'), (2, 'y'); UPDATE `a$$b;//` SET `a$$b;//`='z' WHERE id=2; DELETE FROM `a$$b;//` WHERE `a$$b;//`='x';
CREATE TABLE `äöü` (id INT PRIMARY KEY, `äöü` VARCHAR(20));
INSERT INTO `äöü` VALUES (1, 'x'), (2, 'y'); UPDATE `äöü` SET `äöü`='z' WHERE id=2; DELETE FROM `äöü` WHERE `äöü`='x';
CREATE TABLE `表` (id INT PRIMARY KEY, `表` VARCHAR(20));
INSERT INTO `表` VALUES (1, 'x'), (2, 'y'); UPDATE `表` SET `表`='z' WHERE id=2; DELETE FROM `表` WHERE `表`='x';
CREATE TABLE `123` (id INT PRIMARY KEY, `123` VARCHAR(20));
INSERT INTO `123` VALUES (1, 'x'), (2, 'y'); UPDATE `123` SET `123`='z' WHERE id=2; DELETE FROM `123` WHERE `123`='x';
CREATE TABLE `select` (id INT PRIMARY KEY, `select` VARCHAR(20));
INSERT INTO `select` VALUES (1, 'x'), (2, 'y'); UPDATE `select` SET `select`='z' WHERE id=2; DELETE FROM `select` WHERE `select`='x';
CREATE TABLE `100%` (id INT PRIMARY KEY, `100%` VARCHAR(20));
INSERT INTO `100%` VALUES (1, 'x'), (2, 'y'); UPDATE `100%` SET `100%`='z' WHERE id=2; DELETE FROM `100%` WHERE `100%`='x';
CREATE TABLE `a.b` (id INT PRIMARY KEY, `a.b` VARCHAR(20));
INSERT INTO `a.b` VALUES (1, 'x'), (2, 'y'); UPDATE `a.b` SET `a.b`='z' WHERE id=2; DELETE FROM `a.b` WHERE `a.b`='x';
CREATE TABLE `a	b` (id INT PRIMARY KEY, `a	b` VARCHAR(20));
INSERT INTO `a	b` VALUES (1, 'x'), (2, 'y'); UPDATE `a	b` SET `a	b`='z' WHERE id=2; DELETE FROM `a	b` WHERE `a	b`='x';
CREATE TABLE `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` (id INT PRIMARY KEY, `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` VARCHAR(20));
INSERT INTO `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` VALUES (1, 'x'), (2, 'y'); UPDATE `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` SET `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn`='z' WHERE id=2; DELETE FROM `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` WHERE `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn`='x';
CREATE TABLE `x
; drop table w.victim; --` (id INT PRIMARY KEY, `x
; drop table w.victim; --` VARCHAR(20));
INSERT INTO `x
; drop table w.victim; --` VALUES (1, 'x'), (2, 'y'); UPDATE `x
; drop table w.victim; --` SET `x
; drop table w.victim; --`='z' WHERE id=2; DELETE FROM `x
; drop table w.victim; --` WHERE `x
; drop table w.victim; --`='x';
CREATE DATABASE `w``b`; USE `w``b`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w``b`.t VALUES (2);
CREATE DATABASE `w'b`; USE `w'b`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w'b`.t VALUES (2);
CREATE DATABASE `w"b`; USE `w"b`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w"b`.t VALUES (2);
CREATE DATABASE `w\b`; USE `w\b`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w\b`.t VALUES (2);
CREATE DATABASE `w
b`; USE `w
b`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w
b`.t VALUES (2);
CREATE DATABASE `w--`; USE `w--`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w--`.t VALUES (2);
CREATE DATABASE `w表ä`; USE `w表ä`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w表ä`.t VALUES (2);
CREATE DATABASE `w$$;`; USE `w$$;`; CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO `w$$;`.t VALUES (2);
USE w; SET @`it's \ 
 "`='v'; INSERT INTO victim VALUES (LENGTH(@`it's \ 
 "`) + 1);
