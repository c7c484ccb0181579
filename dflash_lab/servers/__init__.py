"""Engines that serve the pair elsewhere: started or attached to, asked, measured, and compared with replay.

vLLM and SGLang are spoken to over HTTP only; neither is ever imported.
"""
