"""Who is charged with what, what demands a guarantee, and who is due how much."""
