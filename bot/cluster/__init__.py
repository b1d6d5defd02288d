"""Several hosts on one PostgreSQL: leadership, shared files, migration."""
