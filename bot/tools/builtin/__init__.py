"""One file a tool. A module here has `build(ports: ToolPorts) -> Tool`; nothing else is edited to add one."""
