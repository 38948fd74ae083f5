"""The pods of this node: what each was given, and which of its processes still live."""
