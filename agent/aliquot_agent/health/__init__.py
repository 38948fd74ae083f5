"""How well each GPU is: what the driver and operators say of it, kept over restarts, told to the pods on it."""
