"""Permissions: rules that say who may call which tool with which arguments, and defaults for calls that no
rule matches. Rules are compiled to closures. The code has no side effects and reads nothing except
symlinks.
"""
