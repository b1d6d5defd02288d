"""One file per built-in tool. A module in this folder defines `build(ports: ToolPorts) -> Tool`; adding a
tool needs no other change.
"""
