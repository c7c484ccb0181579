"""Performance claims: each script runs both sides in one process, alternating, and ends with one line of JSON."""
