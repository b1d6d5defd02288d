"""The web channel: a chat page in the browser, which only this machine can reach unless the settings say otherwise."""
