"""What the centre decides of places: where a pod may go, and which promise is kept until it is bound."""
