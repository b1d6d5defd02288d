"""Claim check: compares what a reply says was done with what the tools of its turn did.

`reading` finds claims in a text, with the words of one file a language; `performed_actions` is what was done; `checked` stands
around the reply.
"""
