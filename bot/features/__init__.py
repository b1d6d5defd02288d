"""Features. Each feature is a folder with an object named `FEATURE`; the core discovers features in this
folder and imports none by name.
"""
