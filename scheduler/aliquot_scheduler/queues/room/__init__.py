"""Room that is being made for some who wait: for whom, who goes, and what the next leader is told of it."""
