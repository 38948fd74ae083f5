"""Who is let in, round by round: the register of who stands where, and the sweeps over all who wait."""
