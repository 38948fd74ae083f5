"""Who has to go so that another may come: chosen for a real place on real cards, at least harm, within all rights."""
