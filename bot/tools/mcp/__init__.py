"""Tools of MCP servers. All text from servers is untrusted: its size is limited, it is marked as foreign, and it grants
no rights. The MCP SDK is imported only if a server is configured.
"""
