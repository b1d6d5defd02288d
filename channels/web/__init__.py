"""The web channel: a chat page in the browser, on loopback unless told otherwise."""
