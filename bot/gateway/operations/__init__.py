"""For operators: channels that went silent, alerts in their chats, losses told to everybody concerned."""
