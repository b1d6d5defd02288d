"""Tasks: work that the model gives to a conversation of its own, of which only the summary comes back."""
