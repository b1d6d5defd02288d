"""Approvals: a tool call that waits until somebody who may has said yes or no."""
