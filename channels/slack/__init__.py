"""The Slack channel. The gateway imports only `manifest` at startup, and the other modules if the channel is configured."""
