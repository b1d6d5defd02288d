"""Support for several hosts that share one PostgreSQL database: leadership, shared files, migration."""
