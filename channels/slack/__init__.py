"""The Slack channel. Only `manifest` is imported at the start; everything else is imported when the channel is built."""
