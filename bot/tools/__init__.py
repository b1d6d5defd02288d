"""Tools that the model may call: registry, dispatch, permissions, and one file per tool in `builtin`."""
