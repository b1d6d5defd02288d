"""Permissions: rules that say who may call which tool with what, compiled to closures, and defaults without them. Pure but for links."""
