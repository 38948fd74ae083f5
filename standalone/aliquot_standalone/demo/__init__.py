"""The demonstration of `aliquot up --demo`."""
