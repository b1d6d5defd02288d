"""Between the channels and the agent: access, intake, lanes, commands, delivery."""
