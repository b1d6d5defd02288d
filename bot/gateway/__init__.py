"""Between the channels and the agent: access, intake, conversations, commands, delivery."""
