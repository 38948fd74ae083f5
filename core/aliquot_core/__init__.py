"""The contract in code: quantities, requests, claims, grants, names, errors, settings. Pure: no I/O, no clock."""
