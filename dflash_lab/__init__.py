"""DFlash Lab: what does this drafter, with this config, on this target get accepted, where, and how fast?"""

__version__ = "0.1.0"
