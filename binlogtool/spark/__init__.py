"""Export and verify on Spark: session, jobs, data source, streaming."""
