"""Engines: started under a guard or attached to, verified, asked what they can do, and stopped without a trace."""
