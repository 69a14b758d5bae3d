-- Who deleted rows of db_east1.orders2_s last night? The server, the transaction, and the statement: MariaDB's
-- ANNOTATE_ROWS, which stands before the changes that it made.
SELECT time, origin AS server, txn, json_array_length(get_json_object(body, '$.rows')) AS rows, statement
FROM (
  SELECT *, last_value(if(type = 'ANNOTATE_ROWS', get_json_object(body, '$.sql'), NULL), true)
    OVER (PARTITION BY file ORDER BY offset) AS statement
  FROM log
)
WHERE type LIKE 'DELETE_ROWS%' AND object = 'db_east1.orders2_s'
  AND time >= '2026-11-21 03:00' AND time < '2026-11-21 04:00'
ORDER BY time, file, offset
