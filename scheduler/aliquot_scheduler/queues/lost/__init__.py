"""What was lost by turns that led to nothing, and what follows from that."""
