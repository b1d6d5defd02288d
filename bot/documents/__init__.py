"""Recognises documents, pictures and recordings by their bytes, and reads their text. File names are ignored."""
