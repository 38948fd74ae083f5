"""The page: what the leader knows, for people to look at."""
