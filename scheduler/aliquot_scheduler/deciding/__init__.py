"""What the centre decides: whose turn it is, where a pod may go, and which promise is kept until it is bound."""
