"""The centre with real kubelets: placing, its example, and what goes wrong."""
