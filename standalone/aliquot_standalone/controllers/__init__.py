"""A cluster's controllers, as far as one machine has them: jobs, cron jobs, and what goes with its owner."""
