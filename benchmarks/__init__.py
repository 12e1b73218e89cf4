"""Peers and ourselves in one run, on the same threads: ratios, not seconds."""
