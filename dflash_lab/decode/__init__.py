"""The speculative loop: target with taps, caches with rollback, the accept rule, and the loop itself."""
