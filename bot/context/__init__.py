"""What is kept of a conversation and what is sent of it."""
