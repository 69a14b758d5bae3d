-- How much of the log is about which table, hour by hour?
SELECT coalesce(object, '-') AS object, date_trunc('HOUR', time) AS hour, count(*) AS records, sum(size) AS bytes
FROM log
GROUP BY object, hour
ORDER BY hour, bytes DESC
