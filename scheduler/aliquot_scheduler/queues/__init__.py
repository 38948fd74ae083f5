"""Queues: quotas, fair shares and gangs; who is admitted next."""
