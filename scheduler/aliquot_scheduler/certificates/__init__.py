"""The centre's own certificates: made, kept in a Secret, renewed in time, told to the API server."""
