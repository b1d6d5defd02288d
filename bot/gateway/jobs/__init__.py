"""Jobs: what a person has planned becomes a message of theirs once it is due."""
