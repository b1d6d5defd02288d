"""Tools that the model may call: registry, dispatch, permissions, and the tools in `builtin`."""
