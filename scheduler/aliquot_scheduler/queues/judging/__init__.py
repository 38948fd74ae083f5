"""Whether somebody may be let in, and whether he ever could: by numbers, by cards, and with whom."""
