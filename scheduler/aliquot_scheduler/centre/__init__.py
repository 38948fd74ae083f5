"""The centre at work: the shells round what is decided, and how they are put together."""
