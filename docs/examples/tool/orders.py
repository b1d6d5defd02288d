"""An MCP server with one tool. Shipmate starts it as a program and talks to it over stdin and stdout."""

from mcp.server import MCPServer

ORDERS = {"A-17": "shipped on Tuesday", "A-18": "waiting for payment"}
server = MCPServer("orders")


@server.tool()
def order_status(number: str) -> str:
    """State of a customer's order. `number` is the order's number, as in A-17."""
    return ORDERS.get(number, f"There is no order {number}. Ask for the number on the invoice.")


if __name__ == "__main__":
    server.run("stdio")
