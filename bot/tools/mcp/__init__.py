"""Tools of MCP servers (Model Context Protocol). What a server says of itself and of its tools is its word, and no more:
it is bounded, marked and grants nothing. The library is imported only where a server is configured.
"""
