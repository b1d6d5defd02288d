"""Features of the bot. Each feature is a module or folder with an object named `FEATURE`. The core imports every module in
this folder and knows no feature by name.
"""
