"""The GPUs of one node behind one door (`driver.GpuDriver`): the real ones through NVML, or simulated ones."""
