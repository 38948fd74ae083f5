"""What holds a container inside its slice: the interposer's files, and the pace at which each slice may go."""
