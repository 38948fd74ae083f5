"""CEL, the language of conditions in Kubernetes: the part that webhooks' configurations and rules about places use."""
