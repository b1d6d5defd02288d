"""Tools that the model may call: registry, dispatch, permissions, and one file a tool in `builtin`."""
