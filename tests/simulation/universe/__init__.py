"""One node and its API server on one virtual clock: the agent's real code, and everything round it simulated.

How it works. `loop.VirtualLoop` runs all coroutines; when none can go on, it moves its clock to the next timer instead
of waiting. There are no threads, sockets or files: the API server is the pure one of `standalone`, the agent's door is
a pair of buffers, the CDI folder a dictionary. All chance comes from one seed, by streams of their own (`chance`), so a
seed repeats a run to the last step. `life` lets a crash happen at any await of the agent and before any write of it.
"""
