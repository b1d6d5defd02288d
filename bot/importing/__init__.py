"""Imports a `.ship` of Shipmate 0.1: its journal rows and file lines become events, and its files become a backup."""
