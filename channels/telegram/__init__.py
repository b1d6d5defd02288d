"""Telegram by long polling. `manifest` says what it is; the rest is imported when it is built."""
