"""Several processes on one PostgreSQL: who leads, the files that all have, and the way there and back."""
