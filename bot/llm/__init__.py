"""The client of the language model. No other package knows the model's provider. Importing this package is cheap."""
