"""The centre's HTTP: certificates that may change while it serves, who may call, metrics and probes."""
