"""Tools of MCP servers. What servers say is untrusted: bounded, marked, and it grants nothing. The SDK is imported only if a server is
configured.
"""
