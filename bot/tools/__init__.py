"""What the model may call: registry, dispatch, and one file a tool in `builtin`."""
