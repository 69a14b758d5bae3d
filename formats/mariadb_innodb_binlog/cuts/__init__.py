"""Split points of files, and selection of file parts by GTID."""
