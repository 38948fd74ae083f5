"""A recorded workload placed anew by a policy, in seconds: what `aliquot simulate` runs."""
