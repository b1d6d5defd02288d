"""The language model behind its provider: the only room that knows one. Importing this is cheap."""
