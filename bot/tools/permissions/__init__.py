"""Permissions: rules that say who may call which tool with which arguments, and defaults for calls that no rule
matches. Rules are compiled to closures. Judging a call has no side effects and reads only symlinks.
"""
