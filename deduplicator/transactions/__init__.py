"""The transactions of stage two: two producers in turn, and what is certain after each failure."""
