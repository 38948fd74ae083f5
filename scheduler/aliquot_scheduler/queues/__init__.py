"""Queues: quotas, fair shares and gangs; who is admitted next. scheduler/README.md says what each folder does."""
