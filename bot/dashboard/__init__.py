"""The dashboard: health checks, metrics and the console, over HTTP."""
