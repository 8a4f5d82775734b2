"""Read what the views show from the folder of a run. This data is plain and read-only."""
