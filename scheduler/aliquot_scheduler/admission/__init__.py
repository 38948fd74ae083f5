"""The webhook: what a pod's author left out is filled in, what can't be meant is refused with what to write instead."""
