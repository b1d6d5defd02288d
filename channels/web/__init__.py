"""The web channel: a chat page in the browser. By default, only this machine can reach the page."""
