"""Rules of one's own about places: what they are given, what they say, and how that is taken in."""
