"""Slack through Socket Mode. `manifest` says what it is; the rest is imported when it is built."""
