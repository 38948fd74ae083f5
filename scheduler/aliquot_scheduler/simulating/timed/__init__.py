"""A recorded workload in time: pods arrive, wait, run and end."""
