"""Drafters behind one small protocol: ``propose`` tokens from an anchor, ``commit`` what the target accepted."""
